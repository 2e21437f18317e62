"""What operators do: bring dead letters back, cancel, and look at the figures."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import NewJob

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def _bury(client: Client, queue: str = "default", **options: object) -> int:
    job_id = client.enqueue("t", queue=queue, max_attempts=1, **options).id
    client.fail(client.claim(queue), "no luck")
    client.commit()
    return job_id


def test_a_redriven_job_is_the_same_job_with_its_attempts_back(queue: Client, observer: Observer) -> None:
    job_id = _bury(queue, args={"n": 1}, headers={"h": 1}, priority=4, dedup_key="d", unique_key="u")
    (grave,) = observer.dead(job_id)
    assert queue.redrive(job_id).redriven == (job_id,)
    queue.commit()

    job = queue.claim()
    assert (job.id, job.args, job.headers, job.priority) == (job_id, {"n": 1}, {"h": 1}, 4)
    assert (job.dedup_key, job.unique_key, job.enqueued_at) == ("d", "u", grave.enqueued_at)
    assert (job.attempt, job.token) == (1, 2)
    assert observer.job(job_id).errors == grave.errors
    assert observer.dead(job_id)[0].redriven_at is not None


def test_a_redriven_job_that_dies_again_has_two_dead_letters(queue: Client, observer: Observer) -> None:
    job_id = _bury(queue)
    queue.redrive()
    queue.fail(queue.claim(), "still no luck")
    queue.commit()
    first, second = observer.dead(job_id)
    assert (first.redriven_at is None, second.redriven_at is None) == (False, True)
    assert [entry["error"] for entry in second.errors] == ["no luck", "still no luck"]


def test_two_redrives_at_once_make_one_live_job(queue: Client, other: Client, observer: Observer) -> None:
    job_id = _bury(queue)
    assert queue.redrive(job_id).redriven == (job_id,)
    assert other.redrive(job_id).redriven == ()
    queue.commit()
    assert other.redrive(job_id).redriven == ()
    other.commit()
    assert observer.count("queued") == 1


def test_a_dead_letter_whose_key_is_held_by_a_live_job_is_skipped_and_stays(queue: Client, observer: Observer) -> None:
    dead, free = _bury(queue, unique_key="u"), _bury(queue)
    queue.enqueue("t", unique_key="u")
    answer = queue.redrive()
    queue.commit()
    assert (answer.redriven, answer.skipped) == ((free,), (dead,))
    assert observer.dead(dead)[0].redriven_at is None


def test_a_redrive_takes_what_it_is_told_and_the_oldest_death_first(queue: Client) -> None:
    first, second, third = _bury(queue, "a"), _bury(queue, "b"), _bury(queue, "a")
    assert queue.redrive([]).redriven == ()
    assert queue.redrive(task="other").redriven == ()
    assert queue.redrive(queue="a", limit=1).redriven == (first,)
    assert queue.redrive([third, 999]).redriven == (third,)
    assert queue.redrive().redriven == (second,)


@pytest.mark.parametrize("keep", [True, False])
def test_a_cancelled_job_is_buried_or_gone(*, keep: bool, queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t").id
    assert queue.cancel(job_id, reason="customer left", keep=keep)
    assert not queue.cancel(job_id)
    queue.commit()
    assert observer.state(job_id) is None
    graves = [(row.reason, row.errors[0]["error"]) for row in observer.dead(job_id)]
    assert graves == ([("cancelled", "customer left")] if keep else [])


def test_the_figures_count_states_apart_and_lag_only_what_may_run(queue: Client, observer: Observer) -> None:
    _bury(queue)
    queue.enqueue_many([NewJob("t"), NewJob("t"), NewJob("t", delay=86_400)])
    queue.claim()
    queue.enqueue("t", queue="idle", delay=60)
    queue.commit()
    observer.all("UPDATE jobqueue_job SET visible_at = visible_at - interval '10 seconds' WHERE status = 'queued'")

    main, idle = queue.stats()
    assert (main.queue, main.queued, main.claimed, main.scheduled, main.dead) == ("default", 1, 1, 1, 1)
    assert 10 <= main.lag_seconds < 20
    assert (idle.queue, idle.lag_seconds, idle.finished, idle.p50_seconds) == ("idle", 0.0, 0, None)


def test_an_empty_database_has_no_figures(queue: Client) -> None:
    assert queue.stats() == []


def test_expired_leases_are_counted_by_sweep_and_by_claim(queue: Client, observer: Observer) -> None:
    for take in (queue.sweep, queue.claim):
        job = queue.enqueue("t").id
        queue.claim(visibility_timeout=60)
        queue.commit()
        observer.make_due(job)
        take()
        queue.execute("DELETE FROM jobqueue_job")
        queue.commit()
    (stats,) = queue.stats(window=timedelta(minutes=1))
    assert stats.requeued == 2


def test_every_operation_takes_ids_beyond_32_bits(queue: Client, observer: Observer) -> None:
    observer.all("ALTER TABLE jobqueue_job ALTER id RESTART WITH 3000000000")
    observer.all("ALTER TABLE jobqueue_dead_letter ALTER id RESTART WITH 3000000000")
    job_id = queue.enqueue("t", max_attempts=9, unique_key="u").id
    for let_go in (queue.release, lambda job: queue.snooze(job, 0), lambda job: queue.fail(job, "x", retry_in=0)):
        job = queue.claim()
        assert queue.heartbeat(job) == []
        let_go(job)
    queue.reject(queue.claim(), "x")
    assert queue.redrive(job_id).redriven == (job_id,)
    assert queue.enqueue_many([NewJob("t", unique_key="u"), NewJob("t")])[0].id == job_id == 3_000_000_000
    assert queue.cancel(job_id)
    queue.ack(queue.claim())
    queue.commit()


def test_every_number_of_rows_that_grows_is_64_bits_wide(observer: Observer) -> None:
    narrow = observer.all(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'jobqueue%'"
        " AND (is_identity = 'YES' OR column_name IN ('id', 'job_id', 'token')) AND data_type <> 'bigint'"
    )
    assert narrow == []
