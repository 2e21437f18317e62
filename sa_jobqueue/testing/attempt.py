"""One run inside a savepoint of the caller's session, and what the commit guard knew before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from sa_jobqueue.errors import CommitRefused, JobQueueError
from sa_jobqueue.fence import COMMITS_EARLY, Fence, fence_of
from sa_jobqueue.tasks import Task
from sa_jobqueue.testing.lending import alent, lent
from sa_jobqueue.values import ClaimedJob

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["Attempt"]


class Attempt:
    """The savepoint of one run; while it is open, a commit of the session is refused as it is under a worker."""

    def __init__(
        self, session: Session, job: ClaimedJob, task: Task[Any, Any], bind_arguments: Mapping[str, Any]
    ) -> None:
        self.session, self.job, self.task = session, job, task
        self._bind_arguments = dict(bind_arguments)
        self._fence = fence_of(session)
        _forget(self._fence, job)
        self._before = _Memory.of(self._fence)
        self._savepoint = session.begin_nested()
        event.listen(session, "before_commit", self._refuse_commit)

    def call(self) -> None:
        """Call the handler, with the session or with its connection."""
        if not self.task.core:
            self.task.run(self.session, self.job)
            return
        connection = self.session.connection(bind_arguments=self._bind_arguments)
        with lent(connection, self.job):
            self.task.run(connection, self.job)
        self.session.expire_all()  # what the handler has changed is read anew

    async def acall(self, session: AsyncSession) -> None:
        """:meth:`call` for a coroutine function; ``session`` is the async side."""
        if not self.task.core:
            await self.task.arun(session, self.job)
            return
        connection = await session.connection(bind_arguments=self._bind_arguments)
        async with alent(connection, self.job):
            await self.task.arun(connection, self.job)
        self.session.expire_all()

    def release(self) -> None:
        """Keep what the run did; if this raises, :meth:`undo` is to follow."""
        self._stop_refusing()
        self._savepoint.commit()

    def undo(self, error: BaseException) -> None:
        """Take back what the run did, and what the commit guard remembers of it: the claim stands as it did before.

        Raises:
            JobQueueError: if ``error`` came after the handler had rolled the session back itself.
        """
        self._stop_refusing()
        self._check_intact(error)
        self._savepoint.rollback()
        self._before.restore(self._fence)

    def abandon(self) -> None:
        """The test itself is ending (a skip, an interrupt): leave the session to whoever rolls it back."""
        self._stop_refusing()

    def _refuse_commit(self, session: Session) -> None:
        if session.get_nested_transaction() is self._savepoint:
            raise CommitRefused([self.job.id], COMMITS_EARLY)

    def _stop_refusing(self) -> None:
        if event.contains(self.session, "before_commit", self._refuse_commit):
            event.remove(self.session, "before_commit", self._refuse_commit)

    def _check_intact(self, error: BaseException) -> None:
        transaction = self.session.get_nested_transaction()
        while transaction is not None and transaction is not self._savepoint:
            transaction = transaction.parent
        if transaction is None:
            msg = (
                f"the handler of job {self.job.id} ({self.job.task}) rolled back or closed its session. A drain runs "
                f"in the test's own session, so that took the test's rows away too: test this handler with a real "
                f"worker (jobqueue_committed), or let it use session.begin_nested()"
            )
            raise JobQueueError(msg) from error


@dataclass(frozen=True, slots=True)
class _Memory:
    """A copy of what a fence knows."""

    doom: tuple[int, str] | None
    settled: frozenset[int]
    known_duplicates: frozenset[int]
    reliances: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, fence: Fence) -> _Memory:
        return cls(fence.doom, frozenset(fence.settled), frozenset(fence.known_duplicates), tuple(fence.reliances))

    def restore(self, fence: Fence) -> None:
        fence.doom = self.doom
        fence.settled.intersection_update(self.settled)
        fence.known_duplicates.intersection_update(self.known_duplicates)
        fence.reliances[:] = self.reliances


def _forget(fence: Fence, job: ClaimedJob) -> None:
    """A job that runs again in the same transaction has been settled before, under an older token."""
    fence.settled.discard(job.id)
    fence.known_duplicates.discard(job.id)
