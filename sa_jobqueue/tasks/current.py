"""Which job the code that is running now runs for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.values import ClaimedJob

__all__ = ["current_job", "running"]

_current: ContextVar[ClaimedJob] = ContextVar("sa_jobqueue_current_job")


def current_job() -> ClaimedJob:
    """The job that the calling handler runs for, also inside ``asyncio.to_thread``.

    Raises:
        JobQueueError: outside a handler that a worker (or a test's drain) runs.
    """
    try:
        return _current.get()
    except LookupError:
        msg = "current_job() was called outside a running job"
        raise JobQueueError(msg) from None


@contextmanager
def running(job: ClaimedJob) -> Iterator[None]:
    """It is the current one while the block runs."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)
