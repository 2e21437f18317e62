"""Jobs are rows of the caller's transaction, and say exactly once who made them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from sa_jobqueue import InvalidArgument, NewJob, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def test_a_job_is_seen_when_its_transaction_commits_and_not_before(queue: Client, other: Client) -> None:
    made = queue.enqueue("charge", {"order_id": 7}, queue="billing")
    assert other.claim("billing") is None
    other.rollback()

    queue.commit()

    claimed = other.claim("billing")
    assert (claimed.id, claimed.task, claimed.args) == (made.id, "charge", {"order_id": 7})


def test_a_rolled_back_transaction_enqueues_nothing(queue: Client, observer: Observer) -> None:
    queue.execute("INSERT INTO effect (name) VALUES ('order')")
    queue.enqueue("charge")
    queue.rollback()

    assert observer.effects() == []
    assert observer.count("queued") == 0


def test_a_rolled_back_savepoint_takes_its_job_along_and_nothing_else(queue: Client, observer: Observer) -> None:
    queue.execute("INSERT INTO effect (name) VALUES ('order')")
    savepoint = queue.begin_nested()
    queue.enqueue("charge")
    savepoint.rollback()
    queue.commit()

    assert observer.effects() == ["order"]
    assert observer.count("queued") == 0


def test_what_was_asked_for_is_what_a_claim_hands_out(queue: Client) -> None:
    queue.enqueue(
        "t", {"a": 1}, queue="q", priority=-3, max_attempts=9, dedup_key="d", unique_key="u", headers={"trace": "x"}
    )
    job = queue.claim("q", worker="w")

    assert (job.queue, job.args, job.headers, job.priority) == ("q", {"a": 1}, {"trace": "x"}, -3)
    assert (job.max_attempts, job.dedup_key, job.unique_key, job.claimed_by) == (9, "d", "u", "w")
    assert (job.attempt, job.token, job.duplicate, job.requeued) == (1, 1, False, False)


@pytest.mark.parametrize("delay", [3600, 3600.0, timedelta(hours=1)])
def test_a_delay_counts_from_now_by_the_clock_of_the_database(
    delay: float | timedelta, queue: Client, observer: Observer
) -> None:
    made = queue.enqueue("t", delay=delay)
    queue.commit()

    ahead = observer.scalar("SELECT visible_at - enqueued_at FROM jobqueue_job WHERE id = :id", id=made.id)
    assert made.status is State.SCHEDULED
    assert ahead == timedelta(hours=1)
    assert queue.claim() is None


def test_a_time_in_the_past_is_due_at_once(queue: Client) -> None:
    made = queue.enqueue("t", run_at=datetime(2001, 2, 3, tzinfo=UTC))
    assert made.status is State.SCHEDULED
    assert queue.claim().id == made.id


def test_a_naive_time_is_refused_and_the_transaction_goes_on(queue: Client, observer: Observer) -> None:
    queue.execute("SET LOCAL timezone = 'America/New_York'")
    with pytest.raises(ValueError, match="run_at must be a datetime with a time zone"):
        queue.enqueue("t", run_at=datetime(2025, 1, 1, 12))  # noqa: DTZ001 - that is the point
    made = queue.enqueue("t", run_at=datetime(2025, 1, 1, 12, tzinfo=UTC))
    queue.commit()

    assert observer.job(made.id).visible_at == datetime(2025, 1, 1, 12, tzinfo=UTC)


def test_every_time_that_is_handed_out_knows_its_zone(queue: Client) -> None:
    queue.execute("SET LOCAL timezone = 'America/New_York'")
    queue.enqueue("t")
    job = queue.claim()
    times = [job.lease_expires_at, job.enqueued_at, job.claimed_at, queue.snooze(job, 1)]
    assert all(time.utcoffset() is not None for time in times)


def test_a_job_is_as_old_as_its_enqueue_not_as_its_transaction(queue: Client) -> None:
    queue.execute("SELECT pg_sleep(0.3)")
    made = queue.enqueue("t")
    (row,) = queue.execute(
        "SELECT visible_at - now() AS runnable, enqueued_at - now() AS enqueued FROM jobqueue_job WHERE id = :id",
        id=made.id,
    )
    assert min(row.runnable, row.enqueued) >= timedelta(seconds=0.3)


@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 2**31},
        {"priority": 1.5},
        {"max_attempts": 0},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"queue": ""},
        {"queue": "q" * 256},
        {"dedup_key": "k" * 1025},
        {"dedup_key": "job#7"},
        {"unique_key": ""},
        {"unique_key": "a\x00b"},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_before_any_sql(bad: dict[str, object], queue: Client) -> None:
    with pytest.raises(InvalidArgument):
        queue.enqueue("t", **bad)
    assert not queue.run(lambda session: session.in_transaction())


def test_ten_thousand_jobs_are_enqueued_by_one_call_in_their_order(queue: Client, observer: Observer) -> None:
    made = queue.enqueue_many(NewJob("t", {"n": n}) for n in range(10_000))
    queue.commit()

    stored = observer.all("SELECT id, (args ->> 'n')::int AS n FROM jobqueue_job ORDER BY id")
    assert [job.id for job in made] == [row.id for row in stored]
    assert [row.n for row in stored] == list(range(10_000))


def test_many_jobs_keep_every_argument_that_one_job_keeps(queue: Client, observer: Observer) -> None:
    one = {"queue": "q", "priority": 2, "max_attempts": 7, "delay": 60, "dedup_key": "d", "headers": {"h": "ü\n'\""}}
    single = queue.enqueue("t", {"a": [1, None]}, **one).id
    (several,) = queue.enqueue_many([NewJob("t", {"a": [1, None]}, **one)])
    queue.commit()

    ours = ("queue", "task", "args", "headers", "status", "priority", "attempt", "max_attempts", "token", "dedup_key")
    first, second = observer.job(single), observer.job(several.id)
    assert [getattr(first, name) for name in ours] == [getattr(second, name) for name in ours]


def test_nothing_to_enqueue_is_no_error(queue: Client) -> None:
    assert queue.enqueue_many([]) == []


def test_a_role_that_may_insert_but_not_use_the_sequence_enqueues_in_bulk_all_the_same(
    clients: Callable[..., Client], observer: Observer
) -> None:
    observer.all("CREATE ROLE inserter; GRANT INSERT, SELECT ON jobqueue_job TO inserter")
    queue = clients()
    queue.execute("SET ROLE inserter")
    made = queue.enqueue_many([NewJob("t", {"n": n}) for n in range(300)])
    queue.execute("RESET ROLE")
    queue.commit()
    observer.all("DROP OWNED BY inserter; DROP ROLE inserter")
    rows = observer.all("SELECT id FROM jobqueue_job ORDER BY (args->>'n')::int")
    assert [job.id for job in made] == [row.id for row in rows]


def test_a_bulk_that_the_server_refuses_is_an_error_of_sqlalchemy_and_leaves_nothing(
    queue: Client, observer: Observer
) -> None:
    observer.all("ALTER TABLE jobqueue_job ADD CONSTRAINT few CHECK (priority < 5)")
    with pytest.raises(IntegrityError, match="few"):
        queue.enqueue_many([NewJob("t", priority=n % 6) for n in range(300)])
    queue.rollback()
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_in_a_bulk_of_hundreds_delayed_and_unique_jobs_are_what_they_are_elsewhere(
    queue: Client, observer: Observer
) -> None:
    delays, keys = {7: 60}, {8: "u", 9: "u"}
    jobs = [NewJob("t", {"n": n}, delay=delays.get(n), unique_key=keys.get(n)) for n in range(300)]
    made = queue.enqueue_many(jobs)
    queue.commit()
    assert observer.state(made[7].id) == "scheduled"
    assert [made[8].created, made[9].created, made[9].id == made[8].id] == [True, False, True]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 299
