"""The queue's operations on the caller's own session: each is one statement and what its row count means.

Nothing here commits, rolls back, closes or flushes that session. Statements go through ``session.connection()``, which
begins the session's transaction if there is none, and which never flushes half-built objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from sa_jobqueue import exchange, insertion, rates
from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import DuplicateEffect, InvalidArgument, LeaseLost, NoSuchEffect, UnsupportedDatabase
from sa_jobqueue.fence import Fence, fence_of
from sa_jobqueue.hints import hint_after_commit
from sa_jobqueue.models import Models
from sa_jobqueue.payload import clean_text
from sa_jobqueue.retention import PRUNE_LIMIT, Pruned, Retention, check_limit
from sa_jobqueue.statements import claim, operate, rollup, settle, sweep
from sa_jobqueue.states import DeathReason, State
from sa_jobqueue.values import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    Acked,
    ClaimedJob,
    EnqueuedJob,
    Failed,
    NewJob,
    QueueStats,
    Redriven,
    Swept,
    check_name,
    to_seconds,
)
from sa_jobqueue.wire import fetch, in_autocommit, send

if TYPE_CHECKING:
    from sqlalchemy import Connection, Executable, Row
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["DEFAULT_VISIBILITY_TIMEOUT", "ERROR_CHARACTERS", "JobSession"]

DEFAULT_VISIBILITY_TIMEOUT = timedelta(seconds=30)
ERROR_CHARACTERS = 4_000
"""Longest error text that is stored; the rest is cut off."""

_STEPPED_OVER = 1_000
"""Rows at the head of a queue that others may hold locked; a claim looks no further behind them."""


class JobSession:
    """The job queue through the caller's session; it owns nothing and may be made anew for every call.

    Args:
        session: the application's session (or ``scoped_session``), bound to PostgreSQL through psycopg.
        models: the mapped classes, if they are not the ready-made ones.
        natural_keys_only: write a dedup row only for jobs that have a ``dedup_key``.
        job_log: write a row to the job log whenever a job leaves its claim.
    """

    def __init__(
        self,
        session: Session | scoped_session[Session],
        *,
        models: Models | None = None,
        natural_keys_only: bool = False,
        job_log: bool = False,
    ) -> None:
        self.session: Session = session() if callable(session) else session
        self._models = models or Models()
        self._natural_keys_only = natural_keys_only
        self._log = job_log

    def enqueue(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        delay: timedelta | float | None = None,
        run_at: datetime | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        dedup_key: str | None = None,
        unique_key: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> EnqueuedJob:
        """Insert a job; it becomes visible when the caller commits. The arguments are those of :class:`NewJob`.

        Raises:
            InvalidArgument: before any SQL, so the transaction stays usable.
        """
        new = NewJob(task, args, queue, priority, delay, run_at, max_attempts, dedup_key, unique_key, headers)
        if unique_key is not None:
            return self.enqueue_many([new])[0]
        connection = self._connection()
        answer = insertion.insert_one(connection, self._models, new)
        self._hint(connection, [(new.queue, answer)])
        return answer

    def enqueue_many(self, jobs: Iterable[NewJob]) -> list[EnqueuedJob]:
        """Insert any number of jobs by two statements at most; the answers stand in the order of the jobs.

        A job whose ``unique_key`` is held by a live job, or by an earlier one of the same call, gets that job.
        """
        new = list(jobs)
        if not new:
            return []
        connection = self._connection()
        answers = insertion.insert_all(connection, self._models, new)
        self._hint(connection, ((job.queue, answer) for job, answer in zip(new, answers, strict=True)))
        return answers

    def claim(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
        worker: str | None = None,
    ) -> ClaimedJob | None:
        """Claim the next runnable job, or None: the smallest priority first, then the longest runnable.

        Due jobs and expired leases are taken too. Commit now, and the lease is durable: the job comes back
        ``visibility_timeout`` after this statement unless it is settled or its heartbeat goes on. Or do the work and
        ack in this same transaction: then the row lock is the ownership, a crash counts as no attempt, and
        ``idle_in_transaction_session_timeout`` should be set, for a process that hangs keeps the row.

        Raises:
            UnsupportedDatabase: if this is not PostgreSQL, or the connection is in AUTOCOMMIT.
        """
        return next(iter(self.claim_many(queue, limit=1, visibility_timeout=visibility_timeout, worker=worker)), None)

    def claim_many(
        self,
        queue: str = DEFAULT_QUEUE,
        limit: int = 1,
        *,
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
        worker: str | None = None,
    ) -> list[ClaimedJob]:
        """Claim up to ``limit`` jobs in the order of :meth:`claim`; only rows returned or buried get locked."""
        check_name("queue", queue)
        seconds = to_seconds("visibility_timeout", visibility_timeout, least=0.001)
        given: dict[str, Any] = {"for_queue": queue, "worker": worker, "lease": timedelta(seconds=seconds)}
        claimed: list[ClaimedJob] = []
        while (wanted := limit - len(claimed)) > 0:
            given |= {"limit": wanted, "reach": wanted + _STEPPED_OVER}
            rows = fetch(self._lockable(), claim.claim_due(self._models), given)
            claimed += [ClaimedJob(*row) for row in rows if row[0] is not None]
            if len(rows) < wanted:
                break
        return self._rely_on(claimed)

    def claim_ready(
        self, queue: str, *, limit: int, leases: Mapping[str, float], worker: str | None = None
    ) -> list[ClaimedJob]:
        """Claim queued jobs of the tasks in ``leases`` (task to seconds) only: the worker's poll beside its sweep."""
        connection = self._lockable()
        claimed = exchange.claim_ready(connection, self._models, queue, limit=limit, leases=leases, worker=worker)
        return self._rely_on(claimed)

    def heartbeat(
        self,
        jobs: ClaimedJob | Sequence[ClaimedJob],
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
    ) -> list[ClaimedJob]:
        """Extend the leases to ``visibility_timeout`` from now; the answer is the jobs whose lease is lost.

        Never waits: a row that is being settled at this moment is left alone. Call it in a transaction of its own.
        """
        seconds = to_seconds("visibility_timeout", visibility_timeout, least=0.001)
        beating = [jobs] if isinstance(jobs, ClaimedJob) else list(jobs)
        if not beating:
            return []
        return exchange.extend(self._lockable(), self._models, [(job, seconds) for job in beating])

    def once(self, job: ClaimedJob | str, scope: str | None = None) -> bool:
        """Write the dedup row now. False: the effect exists, so skip it, and ack all the same.

        Waits for another transaction that is writing the same row, which serialises the effects of one key.
        """
        claimed = job if isinstance(job, ClaimedJob) else None
        key = job if isinstance(job, str) else job.idempotency_key
        where = scope or (claimed.dedup_scope if claimed else None)
        if where is None:
            msg = "once(key) needs scope=…, the name under which the key is unique"
            raise InvalidArgument(msg)
        given = {"scope": where, "key": key, "job_id": claimed.id if claimed else None}
        written = self._locking(settle.once(self._models), given).first() is not None
        if claimed and where == claimed.dedup_scope and not written:
            self._fence.known_duplicates.add(claimed.id)
        return written

    def ack(self, job: ClaimedJob) -> Acked:
        """Delete the job and write its dedup row, as part of the transaction that holds the effect.

        Raises:
            LeaseLost: the token is stale; this session cannot commit before it is rolled back.
            DuplicateEffect: another job committed the effect of this key, and ``once`` had not told so. Roll back, then
                :meth:`suppress`.
        """
        statement = settle.ack(self._models, natural_keys_only=self._natural_keys_only, log=self._log)
        rows = fetch(self._lockable(), statement, {"for_id": job.id, "for_token": job.token})
        if not rows:
            raise self._lost(job, "ack")
        self._fence.settle(job.id, "ack")
        return self._acked(job, rows[0][1])

    def ack_many(self, jobs: Iterable[ClaimedJob]) -> list[Acked]:
        """:meth:`ack` for several jobs by one statement; either all are acknowledged, or the commit is refused.

        Raises:
            LeaseLost: names the jobs whose token is stale.
            DuplicateEffect: another job, perhaps one of these, has the effect of a key.
        """
        acked = list(jobs)
        statement = settle.ack_many(self._models, natural_keys_only=self._natural_keys_only, log=self._log)
        given = {"ids": [job.id for job in acked], "tokens": [job.token for job in acked]}
        holders = dict(cast("list[tuple[int, int | None]]", fetch(self._lockable(), statement, given)))
        if lost := [job.id for job in acked if job.id not in holders]:
            self._fence.refuse(lost[0], f"the lease of job {lost[0]} was lost before its ack.")
            raise LeaseLost(lost, "ack")
        for job in acked:
            self._fence.settle(job.id, "ack")
        return [self._acked(job, holders[job.id]) for job in acked]

    def suppress(self, job: ClaimedJob) -> Acked:
        """Acknowledge a job whose effect exists already (``job.duplicate``), without an effect of its own.

        Raises:
            LeaseLost: the token is stale.
            NoSuchEffect: perhaps a prune has taken it away since the claim; the job is left as it is.
        """
        row = self._settle(job, settle.suppress(self._models, log=self._log), "ack")
        if not row.exists:
            self._fence.settled.discard(job.id)
            raise NoSuchEffect(job.id, job.dedup_scope, job.idempotency_key)
        return Acked(job.id, duplicate=True)

    def fail(self, job: ClaimedJob, error: BaseException | str, retry_in: timedelta | float | None = None) -> Failed:
        """Schedule the job again after ``retry_in`` (else the default backoff), or bury it after its last attempt.

        Record a failure in a fresh transaction, after the one of the failed run was rolled back.

        Raises:
            LeaseLost: the token is stale; the job's new owner is not disturbed.
        """
        if job.last_attempt:
            return self._bury(job, error, DeathReason.FAILED, "fail")
        delay = Backoff().delay(job.attempt) if retry_in is None else retry_in
        given = {"delay": timedelta(seconds=to_seconds("retry_in", delay)), "error": _error_text(error)}
        row = self._settle(job, settle.retry(self._models, log=self._log), "fail", given)
        return Failed(job.id, dead=False, retry_at=row.visible_at)

    def release(self, job: ClaimedJob) -> None:
        """Give the job back unharmed: in its old place, attempt not counted. Raises LeaseLost."""
        given = {"since": job.runnable_since}
        self._settle(job, settle.release(self._models, log=self._log), "release", given)

    def snooze(self, job: ClaimedJob, delay: timedelta | float) -> datetime:
        """Run the job again after ``delay``, attempt not counted; the answer is when. Raises LeaseLost."""
        given = {"delay": timedelta(seconds=to_seconds("delay", delay))}
        at: datetime = self._settle(job, settle.snooze(self._models, log=self._log), "snooze", given).visible_at
        return at

    def reject(self, job: ClaimedJob, reason: BaseException | str, *, undecodable: bool = False) -> Failed:
        """Bury the job without further attempts. Raises LeaseLost."""
        return self._bury(job, reason, DeathReason.UNDECODABLE if undecodable else DeathReason.REJECTED, "reject")

    def sweep(
        self, limit: int = 1_000, *, queues: Iterable[str] | None = None, requeue_jitter: timedelta | float = 0.0
    ) -> Swept:
        """Promote due jobs, re-queue expired leases, bury those without attempts left: ``limit`` rows a queue.

        Locked rows are skipped. Safe to run from any number of processes at once. With ``requeue_jitter`` (seconds) an
        expired lease is left for a part of that time, so that jobs which lost their workers together come back spread.
        """
        jitter = to_seconds("requeue_jitter", requeue_jitter)
        if queues is None:
            queues = self._execute(sweep.queues_with_due_rows(self._models), {}).scalars().all()
        swept = (exchange.sweep_queue(self._lockable(), self._models, queue, limit, jitter) for queue in queues)
        return sum(swept, Swept())

    def redrive(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 1_000,
    ) -> Redriven:
        """Bring dead letters back as live jobs: those of ``job_ids``, or all that match, oldest death first.

        A job keeps its id, token, keys and enqueue time; its attempts start again. It is skipped, and stays a dead
        letter, while a live job holds its ``unique_key``.
        """
        ids = None if job_ids is None else [job_ids] if isinstance(job_ids, int) else list(job_ids)
        given = {"ids": ids, "for_queue": queue, "for_task": task, "limit": limit}
        rows = self._locking(operate.redrive(self._models), given).all()
        if queues := {row.queue for row in rows if row.redriven}:
            hint_after_commit(self.session, self._connection(), self._models, queues)
        return Redriven(
            redriven=tuple(row.job_id for row in rows if row.redriven),
            skipped=tuple(row.job_id for row in rows if not row.redriven),
        )

    def cancel(self, job_id: int, *, reason: str = "cancelled by an operator", keep: bool = True) -> bool:
        """Take a live job away, whatever its state; its owner's ack will raise LeaseLost. False: no such live job.

        ``keep`` makes it a dead letter; otherwise it is gone. Waits for a transaction that is settling it.
        """
        given = {"for_id": job_id} | ({"error": _error_text(reason)} if keep else {})
        return self._locking(operate.cancel(self._models, keep=keep), given).first() is not None

    def prune(self, retention: Retention, *, limit: int = PRUNE_LIMIT, behind: Pruned | None = None) -> Pruned:
        """Delete what is older than ``retention`` says, in one bounded piece of each table that it names.

        A piece is up to ``limit`` rows that are old enough. Commit, then hand the answer over as ``behind`` to go on,
        until its ``more`` is False. Rows that others hold are skipped, so any number may prune at once. Until the
        commit, an ack or ``once`` of a key that is being deleted waits. :func:`sa_jobqueue.pruning.prune` does it all.

        Raises:
            InvalidArgument: ``limit`` is out of range.
        """
        check_limit(limit)
        return exchange.prune_pieces(self._lockable(), self._models, retention, limit, behind)

    def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """Counts per queue, and what ran within ``window``: throughput, re-queues, p50 and p99 of the run time."""
        to_seconds("window", window, least=1)
        live = self._execute(operate.live(self._models), {}).mappings().all()
        dead = self._execute(operate.buried(self._models), {}).mappings().all()
        recent = self._execute(rollup.window(self._models), {"window": window}).all()
        return rates.queue_stats([*live, *dead], recent, window)

    def _hint(self, connection: Connection, enqueued: Iterable[tuple[str, EnqueuedJob]]) -> None:
        """Only of jobs that may run at once; a worker looks by itself when others become due."""
        queues = {queue for queue, job in enqueued if job.created and job.status is State.QUEUED}
        if queues:
            hint_after_commit(self.session, connection, self._models, queues)

    @property
    def _fence(self) -> Fence:
        return fence_of(self.session)

    def _rely_on(self, claimed: list[ClaimedJob]) -> list[ClaimedJob]:
        for job in claimed:
            self._fence.rely(job.id, "claim")
        return claimed

    def _settle(
        self, job: ClaimedJob, statement: Executable, deed: str, given: Mapping[str, Any] | None = None
    ) -> Row[Any]:
        row: Row[Any] | None = self._locking(
            statement, {"for_id": job.id, "for_token": job.token, **(given or {})}
        ).first()
        if row is None:
            raise self._lost(job, deed)
        self._fence.settle(job.id, deed)
        return row

    def _lost(self, job: ClaimedJob, deed: str) -> LeaseLost:
        self._fence.refuse(job.id, f"the lease of job {job.id} was lost before its {deed}.")
        return LeaseLost([job.id], deed)

    def _acked(self, job: ClaimedJob, holder: int | None) -> Acked:
        """``holder`` is the job that wrote the dedup row; None if there is none."""
        ours = holder == job.id or (self._natural_keys_only and job.dedup_key is None)
        if not ours and job.id not in self._fence.known_duplicates:
            self._fence.refuse(job.id, f"the effect of job {job.id} exists already.")
            raise DuplicateEffect(job.id, job.dedup_scope, job.idempotency_key)
        return Acked(job.id, duplicate=not ours)

    def _bury(self, job: ClaimedJob, error: BaseException | str, reason: DeathReason, deed: str) -> Failed:
        given = {"error": _error_text(error)}
        self._settle(job, settle.bury(self._models, reason, log=self._log), deed, given)
        return Failed(job.id, dead=True, retry_at=None)

    def _connection(self) -> Connection:
        connection = self.session.connection(bind_arguments={"mapper": self._models.job})
        if connection.dialect.name != "postgresql":
            msg = f"sa_jobqueue works on PostgreSQL; this session speaks to {connection.dialect.name}"
            raise UnsupportedDatabase(msg)
        return connection

    def _execute(self, statement: Executable, given: Mapping[str, Any]) -> Any:
        return send(self._connection(), statement, given)

    def _locking(self, statement: Executable, given: Mapping[str, Any]) -> Any:
        return send(self._lockable(), statement, given)

    def _lockable(self) -> Connection:
        """The connection, for what takes row locks and so needs a transaction."""
        connection = self._connection()
        if in_autocommit(connection):
            msg = (
                "this connection is in isolation level AUTOCOMMIT, where a row lock ends with its statement and two "
                "workers get the same job; give the engine isolation_level='READ COMMITTED'"
            )
            raise UnsupportedDatabase(msg)
        self._fence.follow(connection)
        return connection


def _error_text(error: BaseException | str) -> str:
    if isinstance(error, str):
        return clean_text(error, ERROR_CHARACTERS)
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot print itself must be recorded all the same
        said = "(its text cannot be read)"
    return clean_text(f"{type(error).__name__}: {said}", ERROR_CHARACTERS)
