"""``AsyncJobSession``: the names of :class:`JobSession` on an ``AsyncSession``.

The logic is written once, on ``Session``; each body here is one ``run_sync``. SQLAlchemy 2.1 installs greenlet only on
request, so this module needs the extra ``sa-jobqueue[async]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sa_jobqueue.models import Models
from sa_jobqueue.retention import PRUNE_LIMIT, Pruned, Retention
from sa_jobqueue.session import DEFAULT_VISIBILITY_TIMEOUT, JobSession
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
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session

__all__ = ["AsyncJobSession"]

_T = TypeVar("_T")


class AsyncJobSession:
    """The job queue through the caller's ``AsyncSession``; arguments, answers and errors are those of JobSession."""

    def __init__(
        self,
        session: AsyncSession | async_scoped_session[AsyncSession],
        *,
        models: Models | None = None,
        natural_keys_only: bool = False,
        job_log: bool = False,
    ) -> None:
        self.session: AsyncSession = session() if callable(session) else session
        self._options: dict[str, Any] = {
            "models": models,
            "natural_keys_only": natural_keys_only,
            "job_log": job_log,
        }

    async def enqueue(
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
        """See :meth:`JobSession.enqueue`."""
        new = NewJob(task, args, queue, priority, delay, run_at, max_attempts, dedup_key, unique_key, headers)
        return (await self.enqueue_many([new]))[0]

    async def enqueue_many(self, jobs: Iterable[NewJob]) -> list[EnqueuedJob]:
        """See :meth:`JobSession.enqueue_many`."""
        return await self._run(lambda session: session.enqueue_many(jobs))

    async def claim(
        self,
        queue: str = DEFAULT_QUEUE,
        *,
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
        worker: str | None = None,
    ) -> ClaimedJob | None:
        """See :meth:`JobSession.claim`."""
        return await self._run(lambda jobs: jobs.claim(queue, visibility_timeout=visibility_timeout, worker=worker))

    async def claim_many(
        self,
        queue: str = DEFAULT_QUEUE,
        limit: int = 1,
        *,
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
        worker: str | None = None,
    ) -> list[ClaimedJob]:
        """See :meth:`JobSession.claim_many`."""
        return await self._run(
            lambda jobs: jobs.claim_many(queue, limit=limit, visibility_timeout=visibility_timeout, worker=worker)
        )

    async def heartbeat(
        self,
        jobs: ClaimedJob | Sequence[ClaimedJob],
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
    ) -> list[ClaimedJob]:
        """See :meth:`JobSession.heartbeat`."""
        return await self._run(lambda session: session.heartbeat(jobs, visibility_timeout=visibility_timeout))

    async def once(self, job: ClaimedJob | str, scope: str | None = None) -> bool:
        """See :meth:`JobSession.once`."""
        return await self._run(lambda jobs: jobs.once(job, scope=scope))

    async def ack(self, job: ClaimedJob) -> Acked:
        """See :meth:`JobSession.ack`."""
        return await self._run(lambda jobs: jobs.ack(job))

    async def ack_many(self, jobs: Iterable[ClaimedJob]) -> list[Acked]:
        """See :meth:`JobSession.ack_many`."""
        return await self._run(lambda session: session.ack_many(jobs))

    async def suppress(self, job: ClaimedJob) -> Acked:
        """See :meth:`JobSession.suppress`."""
        return await self._run(lambda jobs: jobs.suppress(job))

    async def fail(
        self, job: ClaimedJob, error: BaseException | str, retry_in: timedelta | float | None = None
    ) -> Failed:
        """See :meth:`JobSession.fail`."""
        return await self._run(lambda jobs: jobs.fail(job, error, retry_in=retry_in))

    async def release(self, job: ClaimedJob) -> None:
        """See :meth:`JobSession.release`."""
        await self._run(lambda jobs: jobs.release(job))

    async def snooze(self, job: ClaimedJob, delay: timedelta | float) -> datetime:
        """See :meth:`JobSession.snooze`."""
        return await self._run(lambda jobs: jobs.snooze(job, delay))

    async def reject(self, job: ClaimedJob, reason: BaseException | str, *, undecodable: bool = False) -> Failed:
        """See :meth:`JobSession.reject`."""
        return await self._run(lambda jobs: jobs.reject(job, reason, undecodable=undecodable))

    async def sweep(
        self, limit: int = 1_000, *, queues: Iterable[str] | None = None, requeue_jitter: timedelta | float = 0.0
    ) -> Swept:
        """See :meth:`JobSession.sweep`."""
        return await self._run(lambda jobs: jobs.sweep(limit, queues=queues, requeue_jitter=requeue_jitter))

    async def redrive(
        self,
        job_ids: int | Iterable[int] | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 1_000,
    ) -> Redriven:
        """See :meth:`JobSession.redrive`."""
        return await self._run(lambda jobs: jobs.redrive(job_ids, queue=queue, task=task, limit=limit))

    async def cancel(self, job_id: int, *, reason: str = "cancelled by an operator", keep: bool = True) -> bool:
        """See :meth:`JobSession.cancel`."""
        return await self._run(lambda jobs: jobs.cancel(job_id, reason=reason, keep=keep))

    async def prune(self, retention: Retention, *, limit: int = PRUNE_LIMIT, behind: Pruned | None = None) -> Pruned:
        """See :meth:`JobSession.prune`."""
        return await self._run(lambda jobs: jobs.prune(retention, limit=limit, behind=behind))

    async def stats(self, *, window: timedelta = timedelta(minutes=5)) -> list[QueueStats]:
        """See :meth:`JobSession.stats`."""
        return await self._run(lambda jobs: jobs.stats(window=window))

    async def _run(self, operation: Callable[[JobSession], _T]) -> _T:
        def on_sync_session(session: Session) -> _T:
            return operation(JobSession(session, **self._options))

        return await self.session.run_sync(on_sync_session)
