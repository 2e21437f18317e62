"""One declared handler: called as what it is, enqueued as a job, run as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks.arguments import Arguments
from sa_jobqueue.tasks.current import CURRENT
from sa_jobqueue.tasks.options import Options
from sa_jobqueue.values import ClaimedJob, EnqueuedJob, NewJob

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["Task"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Task(Generic[P, R]):
    """A registered handler: still a plain function when called, and typed by its own signature when enqueued.

    ``time_limit`` and ``visibility_timeout`` are in seconds.
    """

    function: Callable[Concatenate[Any, P], R]
    name: str
    options: Options
    visibility_timeout: float
    backoff: Backoff
    time_limit: float | None
    key_of: Callable[P, str | None] | None
    arguments: Arguments = field(repr=False)
    models: Models | None = field(repr=False)
    batch: int | None = None
    group_commit: int | None = None
    core: bool = False
    """True if the handler works on a connection, not in a session."""

    @property
    def queue(self) -> str:
        """The queue that its jobs go to."""
        return self.options.queue

    @property
    def is_async(self) -> bool:
        """True if the handler is a coroutine function, to be given an ``AsyncSession``."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def together(self) -> int:
        """How many of its jobs one transaction may hold."""
        return self.batch or self.group_commit or 1

    def __call__(self, session: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler itself, as a unit test does."""
        return self.function(session, *args, **kwargs)

    def using(self, **changes: Any) -> Task[P, R]:
        """The same task with other options for the jobs that it enqueues.

        Args:
            **changes: ``queue, priority, delay, run_at, max_attempts, dedup_key, unique_key, headers``.

        Raises:
            InvalidArgument: for any other name.
        """
        return replace(self, options=self.options.changed(changes))

    def new_job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that :meth:`enqueue` would insert.

        Raises:
            InvalidArgument: if the arguments do not fit the handler, or cannot be stored.
        """
        given = self.arguments.bind(args, kwargs)
        key = self.options.dedup_key
        if key is None and self.key_of is not None:
            key = self.key_of(*args, **kwargs)
        return NewJob(self.name, given, **{**self.options.as_dict(), "dedup_key": key})

    @overload
    def enqueue(
        self, session: Session | scoped_session[Session], /, *args: P.args, **kwargs: P.kwargs
    ) -> EnqueuedJob: ...

    @overload
    def enqueue(self, session: AsyncSession, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[EnqueuedJob]: ...

    def enqueue(self, session: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Enqueue in the caller's transaction; with an ``AsyncSession``, await the answer.

        Raises:
            InvalidArgument: before any SQL.
        """
        new = self.new_job(*args, **kwargs)
        if hasattr(session, "run_sync"):
            return session.run_sync(self._insert, new)
        return self._insert(session, new)

    def _insert(self, session: Session | scoped_session[Session], new: NewJob) -> EnqueuedJob:
        return JobSession(session, models=self.models).enqueue_many([new])[0]

    def run(self, session: Any, job: ClaimedJob) -> Any:
        """Call the handler for one job, which is the current one meanwhile.

        A batch gets a list of one, and no job is the current one.

        Raises:
            ArgumentsMismatch: the handler was not called.
        """
        handler: Callable[..., Any] = self.function
        if self.batch:
            return handler(session, [job])
        self.arguments.check(job.args)
        before = CURRENT.set(job)
        try:
            return handler(session, **job.args)
        finally:
            CURRENT.reset(before)

    async def arun(self, session: Any, job: ClaimedJob) -> Any:
        """:meth:`run` for a coroutine function."""
        handler: Callable[..., Any] = self.function
        if self.batch:
            return await handler(session, [job])
        self.arguments.check(job.args)
        before = CURRENT.set(job)
        try:
            return await handler(session, **job.args)
        finally:
            CURRENT.reset(before)
