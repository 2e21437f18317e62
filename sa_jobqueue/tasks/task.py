"""One declared handler: called as what it is, enqueued as a job, run as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from sqlalchemy import Connection

from sa_jobqueue import insertion
from sa_jobqueue.backoff import Backoff
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks.arguments import Arguments
from sa_jobqueue.tasks.current import CURRENT
from sa_jobqueue.tasks.options import Options
from sa_jobqueue.values import ClaimedJob, EnqueuedJob, NewJob

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
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
        """True if the handler is a coroutine function, to be given an ``AsyncSession`` or ``AsyncConnection``."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def together(self) -> int:
        """How many of its jobs one transaction may hold."""
        return self.batch or self.group_commit or 1

    def __call__(self, given: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler itself, as a unit test does; ``given`` is a session, or for a Core task a connection."""
        return self.function(given, *args, **kwargs)

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
        self, given: Session | scoped_session[Session] | Connection, /, *args: P.args, **kwargs: P.kwargs
    ) -> EnqueuedJob: ...

    @overload
    def enqueue(
        self, given: AsyncSession | AsyncConnection, /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[EnqueuedJob]: ...

    def enqueue(self, given: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Enqueue in the transaction of a session or connection; with an async one, await the answer.

        The commit of a connection sends no hint to idle workers: their next look finds the job.

        Raises:
            InvalidArgument: before any SQL.
        """
        new = self.new_job(*args, **kwargs)
        if hasattr(given, "run_sync"):
            return given.run_sync(self._insert, new)
        return self._insert(given, new)

    def _insert(self, given: Session | scoped_session[Session] | Connection, new: NewJob) -> EnqueuedJob:
        """A connection needs no session, which would end the transaction with its close if it had begun it."""
        if isinstance(given, Connection):
            if not given.in_transaction():
                given.begin()
            return insertion.insert_all(given, self.models or Models(), [new])[0]
        return JobSession(given, models=self.models).enqueue_many([new])[0]

    def run(self, given: Any, job: ClaimedJob) -> Any:
        """Call the handler for one job, which is the current one meanwhile.

        ``given`` is a session, or for a Core task a connection. A batch gets a list of one, and no job is the current
        one.

        Raises:
            ArgumentsMismatch: the handler was not called.
        """
        handler: Callable[..., Any] = self.function
        if self.batch:
            return handler(given, [job])
        self.arguments.check(job.args)
        before = CURRENT.set(job)
        try:
            return handler(given, **job.args)
        finally:
            CURRENT.reset(before)

    async def arun(self, given: Any, job: ClaimedJob) -> Any:
        """:meth:`run` for a coroutine function."""
        handler: Callable[..., Any] = self.function
        if self.batch:
            return await handler(given, [job])
        self.arguments.check(job.args)
        before = CURRENT.set(job)
        try:
            return await handler(given, **job.args)
        finally:
            CURRENT.reset(before)
