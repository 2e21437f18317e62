"""The worker's own short transactions, on connections that no handler can take.

Each is one statement in READ COMMITTED, whatever the application's engine is set to: SKIP LOCKED does not avoid
serialization failures on a higher level. Each is bounded in time: no answer is an outage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.statements import drain, rollup, settle
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob, Swept
from sa_jobqueue.worker.line import Line
from sa_jobqueue.worker.tally import Counts
from sa_jobqueue.worker.verdict import Ending, Verdict

__all__ = ["Control", "settle_verdict"]

T = TypeVar("T")

_SWEEP_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Control:
    """Claims, sweeps and records for one worker."""

    line: Line
    models: Models
    worker: str
    job_log: bool

    def claim(self, queue: str, limit: int, leases: Mapping[str, float]) -> list[ClaimedJob]:
        """Lease up to ``limit`` jobs; committed when this returns."""
        return self._commit(lambda jobs: jobs.claim_ready(queue, limit=limit, leases=leases, worker=self.worker))

    def sweep(self, queue: str) -> Swept:
        """Sweep one queue until nothing is left to move."""
        total = Swept()
        while True:
            swept = self._commit(lambda jobs: jobs.sweep(_SWEEP_ROWS, queues=[queue]))
            total += swept
            if swept.total < _SWEEP_ROWS:
                return total

    def heartbeat(self, leases: Sequence[tuple[ClaimedJob, float]]) -> list[ClaimedJob]:
        """Extend leases; the answer is those that are lost."""
        return self._commit(lambda jobs: jobs.heartbeat_each(leases))

    def record(self, job: ClaimedJob, verdict: Verdict) -> Outcome:
        """Write down how a run ended.

        Raises:
            LeaseLost: the job has left this worker; nothing was recorded.
        """
        return self._commit(lambda jobs: settle_verdict(jobs, job, verdict))

    def committed(self, job: ClaimedJob) -> bool:
        """Whether a run whose COMMIT went unanswered took effect: then its dedup row is there."""
        given = {"scope": job.dedup_scope, "key": job.idempotency_key, "job_id": job.id}
        with self.begin() as connection:
            return bool(connection.execute(settle.written(self.models), given).scalar_one())

    def ask(self) -> None:
        """Ask the database for nothing but an answer."""
        with self.begin() as connection:
            connection.execute(text("SELECT 1"))

    def outstanding(self, queues: Sequence[str], tasks: Sequence[str], ids: Iterable[int]) -> bool:
        """Whether a drain still has something to wait for."""
        given = {"for_queues": list(queues), "tasks": list(tasks), "ids": list(ids)}
        with self.begin() as connection:
            return bool(connection.execute(drain.outstanding(self.models), given).scalar_one())

    def add(self, counts: Counts) -> None:
        """Add the tally to the rollup."""
        with self.begin() as connection:
            connection.execute(rollup.add(self.models), counts.as_arrays())

    def end_backend(self, pid: int, *, terminate: bool) -> None:
        """Cancel the statement of a server process, or terminate its session: what it had not committed is undone."""
        function = "pg_terminate_backend" if terminate else "pg_cancel_backend"
        with self.begin() as connection:
            connection.execute(text(f"SELECT {function}(:pid)"), {"pid": pid})

    def gone(self, pids: Iterable[int]) -> set[int]:
        """Those of these server processes that have no session any more."""
        sql = "SELECT unnest(CAST(:pids AS int[])) EXCEPT SELECT pid FROM pg_stat_activity"
        with self.begin() as connection:
            return set(connection.execute(text(sql), {"pids": list(pids)}).scalars())

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block."""
        with self.line.bounded(), self.line.engine.begin() as connection:
            yield connection

    def _commit(self, operation: Callable[[JobSession], T]) -> T:
        with self.line.bounded(), Session(self.line.engine) as session, session.begin():
            return operation(JobSession(session, models=self.models, job_log=self.job_log))


def settle_verdict(jobs: JobSession, job: ClaimedJob, verdict: Verdict) -> Outcome:
    """Record a verdict through any session: the worker's own, or that of a test which drains its queue."""
    error = verdict.ending if verdict.error is None else verdict.error
    if verdict.ending is Ending.DUPLICATE:
        jobs.suppress(job)
        return Outcome.DUPLICATE
    if verdict.ending is Ending.RELEASE:
        jobs.release(job)
        return Outcome.RELEASED
    if verdict.ending is Ending.SNOOZE:
        jobs.snooze(job, verdict.delay or 0)
        return Outcome.SNOOZED
    if verdict.ending is Ending.REJECT or (verdict.undecodable and job.last_attempt):
        jobs.reject(job, error, undecodable=verdict.undecodable)
        return Outcome.DEAD
    failed = jobs.fail(job, error, retry_in=verdict.delay)
    return Outcome.DEAD if failed.dead else Outcome.RETRIED
