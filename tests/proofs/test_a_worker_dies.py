"""A worker process is killed, or frozen, in the middle of a job: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from sa_jobqueue import ClaimedJob, JobSession
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.process import WorkerProcess


class Poller:
    """A second worker that polls without a pause; ``looked_at`` is when, by the database's clock, it found nothing."""

    def __init__(self, factory: sessionmaker[Session]) -> None:
        self._factory = factory
        self.looked_at: list[datetime] = []
        self.claimed: ClaimedJob | None = None

    def poll(self) -> ClaimedJob | None:
        with self._factory.begin() as session:
            self.claimed = JobSession(session).claim(QUEUE)
            if self.claimed is None:
                self.looked_at.append(session.connection().exec_driver_sql("SELECT statement_timestamp()").scalar_one())
        return self.claimed


def test_a_job_whose_worker_is_killed_before_the_ack_is_claimable_after_the_visibility_timeout_and_not_before(
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
) -> None:
    worker = start_process(lease=2.0)
    job = enqueue("hold", {"name": "only"})
    worker.expect(f"holding {job.id}")

    worker.kill()
    expiry, poller = _row(observer, job).visible_at, Poller(sessionmaker)
    wait_until(poller.poll, what="the job to come back")

    assert poller.claimed is not None
    assert poller.looked_at[0] < expiry <= poller.claimed.claimed_at
    assert (poller.claimed.id, poller.claimed.attempt, poller.claimed.requeued) == (job.id, 2, True)
    assert observer.effects() == []


def test_a_job_whose_worker_is_killed_before_the_ack_is_done_once_by_the_next_worker(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    victim = start_process(lease=1.0)
    job = enqueue("hold", {"name": "only"})
    victim.expect(f"holding {job.id}")
    victim.kill()

    heir = start_process(lease=1.0, until_empty=True)
    heir.expect(f"holding {job.id}")
    heir.go_on()

    assert heir.ended() == 0
    assert observer.effects() == ["only"]
    assert observer.job(job.id) is None


def test_a_job_of_three_times_the_timeout_with_heartbeats_is_never_requeued(
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
) -> None:
    worker = start_process(lease=1.5)
    job = enqueue("hold", {"name": "long"})
    worker.expect(f"holding {job.id}")

    poller = Poller(sessionmaker)
    while _age(observer, job) < 3 * 1.5:
        assert poller.poll() is None
    worker.go_on()

    worker.expect(f"RunEnded {job.id} done")
    assert observer.effects() == ["long"]
    assert _requeued(observer) == 0


def test_with_the_heartbeat_stopped_the_job_is_requeued_after_one_timeout(
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
) -> None:
    worker = start_process(lease=1.5)
    job = enqueue("hold", {"name": "long"})
    worker.expect(f"holding {job.id}")

    worker.signal(signal.SIGSTOP)
    expiry, poller = _row(observer, job).visible_at, Poller(sessionmaker)
    wait_until(poller.poll, what="the job to come back")

    assert poller.claimed is not None
    assert poller.looked_at[0] < expiry <= poller.claimed.claimed_at
    assert _requeued(observer) == 1


def _row(observer: Observer, job: EnqueuedJob) -> Any:
    row = observer.job(job.id)
    assert row is not None
    return row


def _age(observer: Observer, job: EnqueuedJob) -> float:
    """Seconds since the claim; on the way, the lease must not have run out."""
    sql = (
        "SELECT extract(epoch FROM statement_timestamp() - claimed_at), visible_at > statement_timestamp(), attempt "
        "FROM jobqueue_job WHERE id = :id"
    )
    age, alive, attempt = observer.all(sql, id=job.id)[0]
    assert alive
    assert attempt == 1
    return float(age)


def _requeued(observer: Observer) -> int:
    return observer.scalar("SELECT coalesce(sum(count), 0) FROM jobqueue_rollup WHERE metric = 'requeued'")
