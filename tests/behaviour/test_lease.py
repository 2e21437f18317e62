"""A heartbeat moves the lease on from now, for live tokens only, and never waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue import NewJob

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

LEFT = "SELECT visible_at - statement_timestamp() FROM jobqueue_job WHERE id = :id"


def test_a_heartbeat_counts_from_now_by_the_clock_of_the_database(queue: Client, observer: Observer) -> None:
    queue.enqueue("t")
    job = queue.claim(visibility_timeout=3600)
    queue.commit()
    assert queue.heartbeat(job, visibility_timeout=60) == []
    queue.commit()
    assert timedelta(seconds=50) < observer.scalar(LEFT, id=job.id) <= timedelta(seconds=60)


def test_an_expired_lease_can_be_saved_until_somebody_takes_the_job(
    queue: Client, other: Client, observer: Observer
) -> None:
    queue.enqueue("t")
    job = queue.claim()
    queue.commit()
    observer.make_due(job.id)

    assert queue.heartbeat(job) == []
    queue.commit()

    assert other.claim() is None
    queue.ack(job)
    queue.commit()


def test_many_leases_beat_at_once_and_only_the_lost_ones_are_named(
    queue: Client, other: Client, observer: Observer
) -> None:
    queue.enqueue_many([NewJob("t")] * 10)
    jobs = queue.claim_many(limit=10)
    queue.commit()
    other.cancel(jobs[3].id)
    other.commit()
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp()")

    assert queue.heartbeat(jobs, visibility_timeout=60) == [jobs[3]]
    queue.commit()

    assert observer.scalar("SELECT min(visible_at) > clock_timestamp() FROM jobqueue_job")


def test_a_process_that_holds_an_old_and_a_new_claim_of_one_job_loses_only_the_old(
    queue: Client, observer: Observer
) -> None:
    queue.enqueue("t")
    old = queue.claim()
    queue.commit()
    observer.make_due(old.id)
    new = queue.claim()
    queue.commit()
    assert queue.heartbeat([old, new]) == [old]


def test_a_job_that_is_being_settled_is_neither_waited_for_nor_called_lost(
    queue: Client, other: Client, observer: Observer
) -> None:
    queue.enqueue_many([NewJob("t")] * 2)
    settled, running = queue.claim_many(limit=2)
    queue.commit()
    queue.ack(settled)

    other.execute("SET LOCAL lock_timeout = '5s'")
    assert other.heartbeat([settled, running], visibility_timeout=600) == []
    other.commit()

    assert observer.scalar(LEFT, id=running.id) > timedelta(seconds=500)
    queue.commit()
    assert other.heartbeat([settled, running]) == [settled]


def test_a_running_handler_that_touched_no_job_row_never_blocks_its_heartbeat(
    queue: Client, other: Client, observer: Observer
) -> None:
    queue.enqueue("t")
    job = queue.claim()
    queue.commit()
    queue.execute("INSERT INTO effect (name) VALUES ('half done')")
    other.heartbeat(job, visibility_timeout=600)
    other.commit()
    assert observer.scalar(LEFT, id=job.id) > timedelta(seconds=500)
    queue.ack(job)
    queue.commit()


def test_no_jobs_need_no_heartbeat(queue: Client) -> None:
    assert queue.heartbeat([]) == []
    assert not queue.run(lambda session: session.in_transaction())


def test_a_foreign_key_to_a_job_does_not_wait_for_its_run(queue: Client, observer: Observer) -> None:
    observer.all("CREATE TABLE note (job_id bigint REFERENCES jobqueue_job ON DELETE CASCADE)")
    queue.enqueue("t")
    queue.commit()
    job = queue.claim()
    observer.all("SET lock_timeout = '5s'; INSERT INTO note VALUES (1)")
    queue.ack(job)
    queue.commit()
    assert observer.all("SELECT * FROM note") == []
