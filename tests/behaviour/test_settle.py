"""How a claimed job ends: acknowledged, retried, given back, put off or buried; each answer says which."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import Backoff, CommitRefused, DuplicateEffect, InvalidArgument, LeaseLost, NewJob
from sa_jobqueue.session import ERROR_CHARACTERS
from sa_jobqueue.statements.bury import ERRORS_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_effect_dedup_row_and_acknowledgement_commit_together(queue: Client, observer: Observer) -> None:
    queue.enqueue("charge", dedup_key="order:7")
    queue.commit()
    queue.execute("INSERT INTO effect (name) VALUES ('charged')")
    acked = queue.ack(queue.claim())
    assert (observer.effects(), observer.dedup_keys(), observer.count("queued")) == ([], [], 1)

    queue.commit()

    assert (acked.duplicate, observer.effects()) == (False, ["charged"])
    assert observer.dedup_keys() == [("charge", "order:7")]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_a_rolled_back_run_leaves_the_job_as_it_was(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("charge").id
    queue.commit()
    queue.execute("INSERT INTO effect (name) VALUES ('charged')")
    queue.ack(queue.claim())
    queue.rollback()

    assert (observer.effects(), observer.dedup_keys()) == ([], [])
    assert (observer.state(job_id), observer.job(job_id).attempt) == ("queued", 0)


@pytest.mark.parametrize(("natural_only", "keys"), [(False, [("t", "job#1"), ("t", "k")]), (True, [("t", "k")])])
def test_a_job_without_a_natural_key_is_remembered_by_its_id_unless_told_otherwise(
    *, natural_only: bool, keys: list[tuple[str, str]], clients: Callable[..., Client], observer: Observer
) -> None:
    queue = clients(natural_keys_only=natural_only)
    queue.enqueue("t")
    queue.enqueue("t", dedup_key="k")
    acked = [queue.ack(job) for job in queue.claim_many(limit=2)]
    queue.commit()
    assert not any(answer.duplicate for answer in acked)
    assert observer.dedup_keys() == keys


def test_a_failure_waits_and_then_dies_with_its_history(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t", max_attempts=2).id
    first = queue.fail(queue.claim(worker="w"), ValueError("boom"), retry_in=60)
    queue.commit()
    assert (first.dead, first.retry_at) == (False, observer.job(job_id).visible_at)
    assert queue.claim() is None
    observer.make_due(job_id)

    second = queue.fail(queue.claim(), "again")
    queue.commit()

    assert (second.dead, second.retry_at) == (True, None)
    (grave,) = observer.dead(job_id)
    assert (grave.reason, grave.attempt, [entry["error"] for entry in grave.errors]) == (
        "failed",
        2,
        ["ValueError: boom", "again"],
    )
    assert (grave.errors[0]["attempt"], grave.errors[0]["worker"]) == (1, "w")


def test_without_a_delay_of_its_own_a_failure_backs_off(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t").id
    queue.fail(queue.claim(), "x")
    queue.commit()
    waits = observer.scalar("SELECT visible_at - statement_timestamp() FROM jobqueue_job WHERE id = :id", id=job_id)
    assert timedelta(seconds=1) < waits < timedelta(seconds=4)


@pytest.mark.parametrize(
    "error",
    ["a\x00b", "lone \ud800 surrogate", "x" * 100_000, Unprintable(), ValueError("\udfff"), ""],
    ids=["nul", "surrogate", "long", "unprintable", "exception", "empty"],
)
def test_any_error_can_be_recorded(error: str | Exception, queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t").id
    queue.fail(queue.claim(), error)
    queue.commit()
    (entry,) = observer.job(job_id).errors
    assert len(entry["error"]) <= ERROR_CHARACTERS
    assert "\x00" not in entry["error"]


def test_the_error_history_is_bounded_and_the_oldest_goes_first(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t", max_attempts=100).id
    for run in range(ERRORS_KEPT + 3):
        queue.fail(queue.claim(), f"run {run}", retry_in=0)
    queue.commit()
    kept = [entry["error"] for entry in observer.job(job_id).errors]
    assert kept == [f"run {run}" for run in range(3, ERRORS_KEPT + 3)]


def test_a_released_job_is_claimed_before_what_came_after_its_claim(queue: Client) -> None:
    first = queue.enqueue("t").id
    queue.commit()
    job = queue.claim()
    queue.commit()
    queue.enqueue("t")
    queue.release(job)
    queue.commit()
    again = queue.claim()
    assert (again.id, again.attempt, again.token) == (first, 1, 2)


def test_a_snooze_says_when_and_gives_the_attempt_back(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t", max_attempts=1).id
    at = queue.snooze(queue.claim(), timedelta(hours=1))
    queue.commit()
    row = observer.job(job_id)
    assert (row.status, row.attempt, row.visible_at, row.errors) == ("scheduled", 0, at, [])


@pytest.mark.parametrize(("undecodable", "reason"), [(False, "rejected"), (True, "undecodable")])
def test_a_rejected_job_is_buried_whatever_attempts_are_left(
    *, undecodable: bool, reason: str, queue: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("t").id
    answer = queue.reject(queue.claim(), "no such order", undecodable=undecodable)
    queue.commit()
    (grave,) = observer.dead(job_id)
    assert answer.dead
    assert (grave.reason, grave.errors[0]["error"]) == (reason, "no such order")


@pytest.mark.parametrize("bad", [-1, float("inf"), "soon"])
def test_a_delay_that_is_no_span_is_refused_and_the_job_is_still_owned(bad: object, queue: Client) -> None:
    queue.enqueue("t")
    job = queue.claim()
    with pytest.raises(InvalidArgument):
        queue.fail(job, "x", retry_in=bad)
    with pytest.raises(InvalidArgument):
        queue.snooze(job, bad)
    queue.ack(job)
    queue.commit()


def test_the_job_log_says_how_each_run_ended(clients: Callable[..., Client], observer: Observer) -> None:
    queue = clients(job_log=True)
    endings = {
        "done": queue.ack,
        "duplicate": lambda job: (queue.once(job), queue.suppress(job)),
        "retried": lambda job: queue.fail(job, "x"),
        "snoozed": lambda job: queue.snooze(job, 60),
        "released": queue.release,
        "dead": lambda job: queue.reject(job, "x"),
    }
    for end in endings.values():
        queue.enqueue("t", max_attempts=2)
        end(queue.claim(worker="w"))
        queue.execute("DELETE FROM jobqueue_job")
    queue.commit()
    rows = observer.all("SELECT * FROM jobqueue_job_log ORDER BY id")
    assert [row.outcome for row in rows] == list(endings)
    assert {(row.worker, row.attempt, row.claimed_at <= row.finished_at) for row in rows} == {("w", 1, True)}


def test_several_jobs_are_acknowledged_together_with_their_dedup_rows(queue: Client, observer: Observer) -> None:
    for key in ("b", "a", None):
        queue.enqueue("t", dedup_key=key)
    jobs = queue.claim_many(limit=3)
    acked = queue.ack_many(jobs)
    queue.commit()
    assert [(answer.job_id, answer.duplicate) for answer in acked] == [(job.id, False) for job in jobs]
    assert sorted(observer.dedup_keys()) == [("t", "a"), ("t", "b"), ("t", f"job#{jobs[2].id}")]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_of_jobs_acknowledged_together_the_lost_ones_are_named_and_none_can_commit(
    queue: Client, observer: Observer
) -> None:
    for _ in range(3):
        queue.enqueue("t")
    jobs = queue.claim_many(limit=3)
    queue.commit()
    observer.steal(jobs[1].id)
    with pytest.raises(LeaseLost) as lost:
        queue.ack_many(jobs)
    assert lost.value.job_ids == (jobs[1].id,)
    with pytest.raises(CommitRefused):
        queue.commit()
    queue.rollback()
    assert (observer.dedup_keys(), observer.count("claimed")) == ([], 3)


def test_of_jobs_acknowledged_together_two_with_one_key_are_a_duplicate_effect(queue: Client) -> None:
    for _ in range(2):
        queue.enqueue("t", dedup_key="same")
    jobs = queue.claim_many(limit=2)
    queue.commit()
    with pytest.raises(DuplicateEffect):
        queue.ack_many(jobs)
    with pytest.raises(CommitRefused):
        queue.commit()


def test_a_released_job_has_its_old_place_in_the_queue_again(queue: Client) -> None:
    first, second = queue.enqueue("t").id, queue.enqueue("t").id
    queue.commit()
    job = queue.claim()
    queue.commit()
    queue.release(job)
    queue.commit()
    assert [job.id for job in queue.claim_many(limit=2)] == [first, second]


def test_five_hundred_failures_at_once_come_back_spread_over_the_jitter(queue: Client, observer: Observer) -> None:
    backoff = Backoff(base=10, jitter=100, cap=600)
    queue.enqueue_many([NewJob("t")] * 500)
    for job in queue.claim_many(limit=500):
        queue.fail(job, "x", retry_in=backoff.delay(job.attempt))
    queue.commit()
    waits = observer.all("SELECT extract(epoch FROM visible_at - (errors->-1->>'at')::timestamptz) FROM jobqueue_job")
    tenths = Counter(int((wait - 10) // 10) for (wait,) in waits)
    assert sorted(tenths) == list(range(10))
    assert max(tenths.values()) < 100
