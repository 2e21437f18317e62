"""Run enqueued jobs in the caller's own session, which its test will roll back.

The claim is made in the caller's transaction, the handler and its ack in a savepoint inside it. A handler that fails
takes only its savepoint with it; the claim still stands, and the failure is recorded as a worker would record it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sa_jobqueue.errors import InvalidArgument
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.testing.attempt import Attempt
from sa_jobqueue.testing.inline import Inline
from sa_jobqueue.testing.report import DrainReport
from sa_jobqueue.worker.setup import lanes

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["adrain", "drain"]

MAX_RUNS = 1_000

T = TypeVar("T")


def drain(
    session: Session | scoped_session[Session],
    tasks: TaskRegistry,
    *,
    queue: str | Sequence[str] | None = None,
    retries: bool = False,
    scheduled: bool = False,
    max_runs: int = MAX_RUNS,
    natural_keys_only: bool = False,
    job_log: bool = False,
    models: Models | None = None,
) -> DrainReport:
    """Run the jobs that are enqueued in ``session``, and those that they enqueue, until none is left to run.

    The session is flushed and never committed; its transaction stays open, and nobody else sees anything of it. Due
    jobs and expired leases are run too. Failures do not raise: ask the report, or call its ``check()``.

    Args:
        session: the session of the test.
        tasks: the handlers.
        queue: one queue or several; by default those of the tasks.
        retries: run a failed job again at once, without its backoff, until it is done or dead.
        scheduled: run the jobs that are scheduled for later too, as if their time had come.
        max_runs: give up after so many runs.
        natural_keys_only: as for the worker.
        job_log: as for the worker.
        models: the mapped classes, if they are not those of the registry.

    Raises:
        InvalidArgument: if a job's handler is a coroutine function.
        JobQueueError: after ``max_runs``, or if a handler rolled back or closed the session.
    """
    models = models or tasks.models or Models()
    jobs = JobSession(session, models=models, natural_keys_only=natural_keys_only, job_log=job_log)
    inline = _inline(jobs, tasks, models, queue, retries=retries, scheduled=scheduled, max_runs=max_runs)
    while (attempt := inline.begin()) is not None:
        inline.end(attempt, _call(attempt))
    return inline.report()


async def adrain(
    session: AsyncSession,
    tasks: TaskRegistry,
    *,
    queue: str | Sequence[str] | None = None,
    retries: bool = False,
    scheduled: bool = False,
    max_runs: int = MAX_RUNS,
    natural_keys_only: bool = False,
    job_log: bool = False,
    models: Models | None = None,
) -> DrainReport:
    """:func:`drain` for an ``AsyncSession``; handlers that are plain functions get its synchronous side."""
    models = models or tasks.models or Models()
    jobs = JobSession(session.sync_session, models=models, natural_keys_only=natural_keys_only, job_log=job_log)
    inline = _inline(jobs, tasks, models, queue, retries=retries, scheduled=scheduled, max_runs=max_runs)
    while (attempt := await _on_sync_side(session, inline.begin)) is not None:
        await _on_sync_side(session, inline.end, attempt, await _acall(session, attempt))
    return await _on_sync_side(session, inline.report)


def _inline(
    jobs: JobSession,
    tasks: TaskRegistry,
    models: Models,
    queue: str | Sequence[str] | None,
    *,
    retries: bool,
    scheduled: bool,
    max_runs: int,
) -> Inline:
    queues = [queue] if isinstance(queue, str) else queue
    return Inline(jobs, tasks, lanes(tasks, queues), models, retries=retries, scheduled=scheduled, max_runs=max_runs)


def _call(attempt: Attempt) -> BaseException | None:
    """What the handler raised. An interrupt, or pytest's skip and fail, is no failure of the job and goes on."""
    if attempt.task.is_async:
        attempt.abandon()
        msg = f"the handler of task {attempt.task.name!r} is a coroutine function: await adrain(async_session, tasks)"
        raise InvalidArgument(msg)
    try:
        if not attempt.job.duplicate:
            attempt.call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a handler may raise anything; the report has it)
        return error
    except BaseException:
        attempt.abandon()
        raise
    return None


async def _acall(session: AsyncSession, attempt: Attempt) -> BaseException | None:
    if not attempt.task.is_async:
        return await _on_sync_side(session, _call, attempt)
    try:
        if not attempt.job.duplicate:
            await attempt.acall(session)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (as above)
        return error
    except BaseException:
        attempt.abandon()
        raise
    return None


async def _on_sync_side(session: AsyncSession, work: Callable[..., T], *args: Any) -> T:
    return await session.run_sync(lambda _: work(*args))
