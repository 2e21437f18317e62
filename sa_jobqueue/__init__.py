"""An at-least-once job queue for PostgreSQL inside your SQLAlchemy session and Alembic history.

At-least-once execution; exactly-once effect inside one PostgreSQL database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import (
    CommitRefused,
    DuplicateEffect,
    InvalidArgument,
    InvalidPayload,
    JobQueueError,
    LeaseLost,
    NoSuchEffect,
    PruneUnfinished,
    RejectJob,
    SchemaMismatch,
    SnoozeJob,
    UnknownTask,
    UnsupportedDatabase,
    WorkerMisconfigured,
)
from sa_jobqueue.models import DeadLetter, DedupKey, Job, JobLog, Models, metadata
from sa_jobqueue.retention import Pruned, Retention
from sa_jobqueue.session import JobSession
from sa_jobqueue.states import DeathReason, State
from sa_jobqueue.tasks import Task, TaskRegistry, current_job
from sa_jobqueue.values import Acked, ClaimedJob, EnqueuedJob, Failed, NewJob, QueueStats, Redriven, Swept
from sa_jobqueue.worker import Worker

if TYPE_CHECKING:
    from sa_jobqueue.aio import AsyncJobSession

__all__ = [
    "Acked",
    "AsyncJobSession",
    "Backoff",
    "ClaimedJob",
    "CommitRefused",
    "DeadLetter",
    "DeathReason",
    "DedupKey",
    "DuplicateEffect",
    "EnqueuedJob",
    "Failed",
    "InvalidArgument",
    "InvalidPayload",
    "Job",
    "JobLog",
    "JobQueueError",
    "JobSession",
    "LeaseLost",
    "Models",
    "NewJob",
    "NoSuchEffect",
    "PruneUnfinished",
    "Pruned",
    "QueueStats",
    "Redriven",
    "RejectJob",
    "Retention",
    "SchemaMismatch",
    "SnoozeJob",
    "State",
    "Swept",
    "Task",
    "TaskRegistry",
    "UnknownTask",
    "UnsupportedDatabase",
    "Worker",
    "WorkerMisconfigured",
    "current_job",
    "metadata",
]


def __getattr__(name: str) -> Any:
    """Import the asyncio side on demand: SQLAlchemy 2.1 comes without greenlet, and most applications need none."""
    if name == "AsyncJobSession":
        from sa_jobqueue.aio import AsyncJobSession  # noqa: PLC0415 - see above

        return AsyncJobSession
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
