"""Which job the code that is running now runs for."""

from __future__ import annotations

from contextvars import ContextVar

from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.values import ClaimedJob

__all__ = ["CURRENT", "current_job"]

CURRENT: ContextVar[ClaimedJob] = ContextVar("sa_jobqueue_current_job")
"""Set while a handler runs."""


def current_job() -> ClaimedJob:
    """The job that the calling handler runs for, also inside ``asyncio.to_thread``.

    Raises:
        JobQueueError: outside a handler that a worker (or a test's drain) runs.
    """
    try:
        return CURRENT.get()
    except LookupError:
        msg = "current_job() was called outside a running job"
        raise JobQueueError(msg) from None
