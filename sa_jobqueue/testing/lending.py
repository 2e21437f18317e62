"""The connection of a test's session, lent to a Core handler: the transaction on it stays the test's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sa_jobqueue.errors import CommitRefused, JobQueueError
from sa_jobqueue.fence import COMMITS_EARLY
from sa_jobqueue.values import ClaimedJob

if TYPE_CHECKING:
    from sqlalchemy import Connection, NestedTransaction
    from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["alent", "lent"]

_CLOSES = "the handler closes its connection, which would undo what it has changed. The worker commits and closes it."


@contextmanager
def lent(connection: Connection, job: ClaimedJob) -> Iterator[None]:
    """While the block runs, the connection refuses to end its transaction, or itself, and says why."""
    loan = _Loan(connection, job)
    try:
        yield
        loan.keep()
    except BaseException:
        loan.undo()
        raise
    finally:
        loan.end()


@asynccontextmanager
async def alent(connection: AsyncConnection, job: ClaimedJob) -> AsyncIterator[None]:
    """:func:`lent` for a coroutine."""
    loan = await connection.run_sync(_Loan, job)
    try:
        yield
        await connection.run_sync(lambda _: loan.keep())
    except BaseException:
        await connection.run_sync(lambda _: loan.undo())
        raise
    finally:
        loan.end()


class _Loan:
    """A savepoint of the handler's own, which a session that it joins to the connection may roll back."""

    def __init__(self, connection: Connection, job: ClaimedJob) -> None:
        self._connection, self._outer = connection, connection.get_nested_transaction()
        connection.begin_nested()
        self._refused: JobQueueError | None = None
        self._refusals = _refusals(job)
        for name, error in self._refusals.items():
            setattr(connection, name, partial(self._refuse, error))

    def keep(self) -> None:
        """Keep what the handler did, also in savepoints that it has left open, as the worker's commit does.

        Raises:
            JobQueueError: if something was refused, even if the handler has swallowed that.
        """
        if self._refused is not None:
            raise self._refused
        for savepoint in self._left_open():
            savepoint.commit()

    def undo(self) -> None:
        """Take it back."""
        for savepoint in self._left_open():
            savepoint.rollback()

    def end(self) -> None:
        """The connection is as it was."""
        for name in self._refusals:
            delattr(self._connection, name)

    def _refuse(self, error: JobQueueError) -> NoReturn:
        self._refused = error
        raise error

    def _left_open(self) -> Iterator[NestedTransaction]:
        """The innermost first; it is to be ended before the next is asked for."""
        innermost = self._connection.get_nested_transaction()
        while innermost is not None and innermost is not self._outer:
            yield innermost
            innermost = self._connection.get_nested_transaction()


def _refusals(job: ClaimedJob) -> dict[str, JobQueueError]:
    undoes = (
        f"the handler of job {job.id} ({job.task}) rolls its connection back. A drain runs in the test's own "
        f"transaction, so that would take the test's rows away too: test this handler with a real worker "
        f"(jobqueue_committed), or let it use begin_nested()"
    )
    return {
        "commit": CommitRefused([job.id], COMMITS_EARLY),
        "rollback": JobQueueError(undoes),
        "close": CommitRefused([job.id], _CLOSES),
    }
