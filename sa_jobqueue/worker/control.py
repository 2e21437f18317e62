"""The worker's own short transactions, on connections that no handler can take.

Each is one statement in READ COMMITTED, whatever the application's engine is set to: SKIP LOCKED does not avoid
serialization failures on a higher level. Each is bounded in time: no answer is an outage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from sa_jobqueue import exchange
from sa_jobqueue.errors import NoSuchEffect
from sa_jobqueue.exchange import Place, Sight
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.statements import drain, rollup, settle
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob, Swept
from sa_jobqueue.wire import send
from sa_jobqueue.worker.line import Line
from sa_jobqueue.worker.tally import Counts
from sa_jobqueue.worker.verdict import Ending, Verdict

__all__ = ["Control", "settle_verdict"]

T = TypeVar("T")

_SWEEP_ROWS = 1_000


@dataclass(slots=True)
class Control:
    """Claims, sweeps and records for one worker.

    What is one statement commits by itself: no process can be paused between it and its COMMIT, and it is one round
    trip. That takes a server whose own default is READ COMMITTED; :meth:`open` finds that out.
    """

    line: Line
    models: Models
    worker: str
    job_log: bool
    requeue_jitter: float = 0.0
    _transactions: Engine = field(init=False)
    _statements: Engine = field(init=False)

    def __post_init__(self) -> None:
        self._transactions = self._statements = self.engine.execution_options(isolation_level="READ COMMITTED")

    @property
    def engine(self) -> Engine:
        """The engine of all transactions."""
        return self.line.engine

    def open(self) -> None:
        """Learn the isolation level that a statement has which is not in a transaction."""
        direct = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        with self.line.bounded(), direct.connect() as connection:
            level = connection.execute(text("SHOW default_transaction_isolation")).scalar_one()
        self._statements = direct if level == "read committed" else self._transactions

    def see(self, queues: Sequence[str]) -> list[Sight]:
        """Look at the queues."""
        with self.line.at_hand(self._statements) as connection:
            return exchange.see(connection, self.models, queues)

    def claim(self, queue: str, limit: int, leases: Mapping[str, float], behind: Place | None) -> list[ClaimedJob]:
        """Lease up to ``limit`` jobs; committed when this returns."""
        with self.line.at_hand(self._statements) as connection:
            return exchange.claim_ready(
                connection, self.models, queue, limit=limit, leases=leases, worker=self.worker, behind=behind
            )

    def sweep(self, queue: str) -> Swept:
        """Sweep one queue until nothing is left to move."""
        total = Swept()
        while True:
            with self._statement() as connection:
                swept = exchange.sweep_queue(connection, self.models, queue, _SWEEP_ROWS, self.requeue_jitter)
            total += swept
            if swept.total < _SWEEP_ROWS:
                return total

    def heartbeat(self, leases: Sequence[tuple[ClaimedJob, float]]) -> list[ClaimedJob]:
        """Extend leases; the answer is those that are lost."""
        with self._statement() as connection:
            return exchange.extend(connection, self.models, leases)

    def release(self, jobs: Sequence[ClaimedJob]) -> set[int]:
        """Give jobs back that no handler has seen; the answer is the ids of those that were still ours."""
        with self._statement() as connection:
            return exchange.release_many(connection, self.models, jobs, log=self.job_log)

    def release_unanswered(self, queue: str, known: Iterable[int]) -> int:
        """Give back what this worker has claimed without hearing of it; ``known`` are the ids that it has heard of."""
        with self._statement() as connection:
            return exchange.release_unanswered(connection, self.models, queue, self.worker, known, log=self.job_log)

    def record(self, job: ClaimedJob, verdict: Verdict) -> Outcome:
        """Write down how a run ended.

        Raises:
            LeaseLost: the job has left this worker; nothing was recorded.
        """
        return self._commit(lambda jobs: settle_verdict(jobs, job, verdict))

    def committed(self, job: ClaimedJob) -> bool:
        """Whether a run whose COMMIT went unanswered took effect: then its dedup row is there."""
        given = {"scope": job.dedup_scope, "key": job.idempotency_key, "job_id": job.id}
        with self._statement() as connection:
            return bool(send(connection, settle.written(self.models), given).scalar_one())

    def outstanding(self, queues: Sequence[str], tasks: Sequence[str], ids: Iterable[int]) -> bool:
        """Whether a drain still has something to wait for."""
        given = {"for_queues": list(queues), "tasks": list(tasks), "ids": list(ids)}
        with self._statement() as connection:
            return bool(send(connection, drain.outstanding(self.models), given).scalar_one())

    def add(self, counts: Counts) -> None:
        """Add the tally to the rollup."""
        with self._statement() as connection:
            send(connection, rollup.add(self.models), counts.as_arrays())

    def end_backend(self, pid: int, *, terminate: bool) -> None:
        """Cancel the statement of a server process, or terminate its session: what it had not committed is undone."""
        function = "pg_terminate_backend" if terminate else "pg_cancel_backend"
        with self._statement() as connection:
            connection.execute(text(f"SELECT {function}(:pid)"), {"pid": pid})

    def sessions(self, pids: Iterable[int]) -> dict[int, datetime | None]:
        """Those of these server processes that have a session, and since when it waits for its client, if it does."""
        sql = (
            "SELECT pid, CASE WHEN state LIKE 'idle%' THEN state_change END AS since "
            "FROM pg_stat_activity WHERE pid = ANY(CAST(:pids AS int[]))"
        )
        with self._statement() as connection:
            rows = connection.execute(text(sql), {"pids": list(pids)})
            return {row.pid: row.since for row in rows}

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One transaction, committed at the end of the block."""
        with self.line.bounded(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _statement(self) -> Iterator[Connection]:
        with self.line.bounded(), self._statements.begin() as connection:
            yield connection

    def _commit(self, operation: Callable[[JobSession], T]) -> T:
        with self.line.bounded(), Session(self._transactions) as session, session.begin():
            return operation(JobSession(session, models=self.models, job_log=self.job_log))


def settle_verdict(jobs: JobSession, job: ClaimedJob, verdict: Verdict) -> Outcome:
    """Record a verdict through any session: the worker's own, or that of a test which drains its queue."""
    error = verdict.ending if verdict.error is None else verdict.error
    if verdict.ending is Ending.DUPLICATE:
        return _suppress(jobs, job)
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


def _suppress(jobs: JobSession, job: ClaimedJob) -> Outcome:
    """If a prune has taken the effect away meanwhile, the job runs again, and is no duplicate then."""
    try:
        jobs.suppress(job)
    except NoSuchEffect:
        jobs.snooze(job, 0)
        return Outcome.SNOOZED
    return Outcome.DUPLICATE
