"""The connection of a test's session, lent to a Core handler: the transaction on it stays the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from sa_jobqueue.errors import CommitRefused, JobQueueError
from sa_jobqueue.fence import COMMITS_EARLY
from sa_jobqueue.values import ClaimedJob

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["lent"]

_CLOSES = "the handler closes its connection, which would undo what it has changed. The worker commits and closes it."


@contextmanager
def lent(connection: Connection, job: ClaimedJob) -> Iterator[None]:
    """While the block runs, the connection refuses to end its transaction, or itself, and says why."""
    undoes = (
        f"the handler of job {job.id} ({job.task}) rolls its connection back. A drain runs in the test's own "
        f"transaction, so that would take the test's rows away too: test this handler with a real worker "
        f"(jobqueue_committed), or let it use begin_nested()"
    )
    refusals = {
        "commit": CommitRefused([job.id], COMMITS_EARLY),
        "rollback": JobQueueError(undoes),
        "close": CommitRefused([job.id], _CLOSES),
    }
    for name, error in refusals.items():
        setattr(connection, name, _refusing(error))
    try:
        yield
    finally:
        for name in refusals:
            delattr(connection, name)


def _refusing(error: JobQueueError) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise error

    return refuse
