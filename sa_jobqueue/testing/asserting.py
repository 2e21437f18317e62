"""A look at what is enqueued, through the caller's session, so that what it has not committed is seen too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from sa_jobqueue.models import Models
from sa_jobqueue.states import State
from sa_jobqueue.tasks import Task

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["PendingJob", "assert_enqueued"]


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job that waits to be run; ``args`` and ``headers`` do not print themselves, since they may be secret."""

    id: int
    queue: str
    task: str
    args: dict[str, Any] = field(repr=False, hash=False)
    headers: dict[str, Any] = field(repr=False, hash=False)
    status: State
    priority: int
    max_attempts: int
    visible_at: datetime
    dedup_key: str | None
    unique_key: str | None


def assert_enqueued(
    session: Session,
    task: Task[Any, Any] | str,
    *,
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    times: int | None = None,
    show_args: bool = False,
    models: Models | None = None,
) -> list[PendingJob]:
    """The queued and scheduled jobs of ``task``, oldest first. With an ``AsyncSession``, ``run_sync`` this function.

    Args:
        session: the session that enqueued, or any that sees what was committed; it is not flushed.
        task: the task or its name.
        args: arguments that the stored job must have; it may have others.
        queue: only jobs in this queue.
        times: how many there must be; 0 for none. By default at least one.
        show_args: print the arguments of the jobs that are there; by default only names are printed.
        models: the mapped classes, if they are not those of the task, or for a name the ready-made ones.

    Raises:
        AssertionError: lists by name what is enqueued instead.
    """
    __tracebackhide__ = True
    name = task if isinstance(task, str) else task.name
    there = _pending(session, models or (None if isinstance(task, str) else task.models) or Models())
    found = [job for job in there if job.task == name and queue in {None, job.queue} and _fits(job, args or {})]
    if (times is None and found) or times == len(found):
        return found
    wanted = "at least one" if times is None else times
    msg = f"expected {wanted} of {_described(name, queue, args)}, found {len(found)}; {_listing(there, show_args)}"
    raise AssertionError(msg)


def _pending(session: Session, models: Models) -> list[PendingJob]:
    job = models.table(models.job)
    columns = [job.c[name] for name in PendingJob.__dataclass_fields__]
    waiting = select(*columns).where(job.c.status != State.CLAIMED.value).order_by(job.c.id)
    rows = session.connection(bind_arguments={"mapper": models.job}).execute(waiting)
    return [PendingJob(**{**row, "status": State(row["status"])}) for row in rows.mappings()]


def _fits(job: PendingJob, args: Mapping[str, Any]) -> bool:
    return all(name in job.args and job.args[name] == value for name, value in args.items())


def _described(task: str, queue: str | None, args: Mapping[str, Any] | None) -> str:
    where = "" if queue is None else f" in queue {queue!r}"
    which = f" with the given {', '.join(args)}" if args else ""
    return f"task {task!r}{where}{which}"


def _listing(jobs: list[PendingJob], show_args: bool) -> str:  # noqa: FBT001 (private, and named as its caller's own)
    if not jobs:
        return "nothing is enqueued"
    lines = [
        f"{job.task!r} in queue {job.queue!r}, {job.status}" + (f": {job.args}" if show_args else "") for job in jobs
    ]
    return "enqueued are:\n" + "\n".join(f"  {count} x {line}" for line, count in Counter(lines).items())
