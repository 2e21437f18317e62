"""Handlers: plain functions with a name, a queue and a retry policy. A registry is a value; there is no global one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import ArgumentsMismatch, InvalidArgument, JobQueueError, UnknownTask
from sa_jobqueue.session import DEFAULT_VISIBILITY_TIMEOUT, JobSession
from sa_jobqueue.values import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    ClaimedJob,
    EnqueuedJob,
    NewJob,
    check_name,
    to_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, scoped_session

__all__ = ["Task", "TaskRegistry", "current_job"]

P = ParamSpec("P")
R = TypeVar("R")

MOST_TOGETHER = 1_000
"""Jobs that one transaction may hold."""

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


@dataclass(frozen=True, slots=True)
class _Options:
    """What one enqueue may change of a task's defaults."""

    queue: str
    max_attempts: int
    priority: int = 0
    delay: timedelta | float | None = None
    run_at: datetime | None = None
    dedup_key: str | None = None
    unique_key: str | None = None
    headers: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Task(Generic[P, R]):
    """A registered handler: still a plain function when called, and typed by its own signature when enqueued.

    ``time_limit`` and ``visibility_timeout`` are in seconds.
    """

    function: Callable[Concatenate[Any, P], R]
    name: str
    options: _Options
    visibility_timeout: float
    backoff: Backoff
    time_limit: float | None
    key_of: Callable[P, str | None] | None
    _signature: inspect.Signature = field(repr=False)
    _names: frozenset[str] | None = field(repr=False, default=None)
    """The arguments that fit without a closer look: one for each parameter; None if they cannot be told by name."""
    batch: int | None = None
    group_commit: int | None = None

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
        if unknown := sorted(set(changes) - set(_Options.__dataclass_fields__)):
            msg = f"using() knows {sorted(_Options.__dataclass_fields__)}; got {unknown}"
            raise InvalidArgument(msg)
        return replace(self, options=replace(self.options, **changes))

    def new_job(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job that :meth:`enqueue` would insert.

        Raises:
            InvalidArgument: if the arguments do not fit the handler, or cannot be stored.
        """
        given = self._bind(*args, **kwargs)
        key = self.options.dedup_key
        if key is None and self.key_of is not None:
            key = self.key_of(*args, **kwargs)
        return NewJob(self.name, given, **{**_as_dict(self.options), "dedup_key": key})

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
            return session.run_sync(lambda sync: JobSession(sync).enqueue_many([new])[0])
        return JobSession(session).enqueue_many([new])[0]

    def run(self, session: Any, job: ClaimedJob) -> Any:
        """Call the handler for one job, which is the current one meanwhile.

        A batch gets a list of one, and no job is the current one.

        Raises:
            ArgumentsMismatch: the handler was not called.
        """
        handler: Callable[..., Any] = self.function
        if self.batch:
            return handler(session, [job])
        self.check(job.args)
        token = _current.set(job)
        try:
            return handler(session, **job.args)
        finally:
            _current.reset(token)

    async def arun(self, session: Any, job: ClaimedJob) -> Any:
        """:meth:`run` for a coroutine function."""
        handler: Callable[..., Any] = self.function
        if self.batch:
            return await handler(session, [job])
        self.check(job.args)
        token = _current.set(job)
        try:
            return await handler(session, **job.args)
        finally:
            _current.reset(token)

    def check(self, args: Mapping[str, Any]) -> None:
        """Raise ArgumentsMismatch unless the stored arguments fit the handler."""
        if self._names is not None and args.keys() == self._names:
            return
        try:
            self._signature.bind(None, **args)
        except TypeError as error:
            raise ArgumentsMismatch(self.name, str(error)) from None

    def _bind(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self.batch:
            return self._named(*args, **kwargs)
        try:
            bound = self._signature.bind(None, *args, **kwargs)
        except TypeError as error:
            msg = f"task {self.name!r}: {error}"
            raise InvalidArgument(msg) from None
        given = dict(list(bound.arguments.items())[1:])
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        return given

    def _named(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if args:
            msg = f"task {self.name!r} takes its jobs in batches: name each argument of the job"
            raise InvalidArgument(msg)
        return kwargs


class _Declare(Protocol):
    """A decorator that keeps the handler's parameters and answer."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class _DeclareBatch(Protocol):
    """A decorator for a handler of several jobs; their arguments are known to the handler alone."""

    def __call__(self, function: Callable[[Any, list[ClaimedJob]], R], /) -> Task[..., R]: ...


class TaskRegistry:
    """The tasks that an application knows. Two tasks cannot share a name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[Any, Any]] = {}

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __getitem__(self, name: str) -> Task[Any, Any]:
        """The task of that name; raises UnknownTask."""
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(name, self._tasks) from None

    @overload
    def task(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = ...,
        max_attempts: int = ...,
        visibility_timeout: timedelta | float = ...,
        backoff: Backoff | None = None,
        time_limit: timedelta | float | None = None,
        dedup_key: Callable[..., str | None] | None = None,
        group_commit: int | None = None,
    ) -> _Declare: ...

    @overload
    def task(
        self,
        /,
        *,
        batch: int,
        name: str | None = None,
        queue: str = ...,
        max_attempts: int = ...,
        visibility_timeout: timedelta | float = ...,
        backoff: Backoff | None = None,
        time_limit: timedelta | float | None = None,
        dedup_key: Callable[..., str | None] | None = None,
    ) -> _DeclareBatch: ...

    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        visibility_timeout: timedelta | float = DEFAULT_VISIBILITY_TIMEOUT,
        backoff: Backoff | None = None,
        time_limit: timedelta | float | None = None,
        dedup_key: Callable[..., str | None] | None = None,
        group_commit: int | None = None,
        batch: int | None = None,
    ) -> Any:
        """Declare a handler; its first parameter is the session, the others are the job's arguments.

        Args:
            function: the handler, when used as a bare ``@tasks.task``.
            name: what the job's row calls it; the function's name by default. Keep it when you rename the function.
            queue: where its jobs go.
            max_attempts: claims without an ack before a job is a dead letter.
            visibility_timeout: how long a job stays with a worker whose heartbeat has stopped; timedelta or seconds.
            backoff: how long a failed job waits.
            time_limit: after this long a run is ended from outside; timedelta or seconds.
            dedup_key: the natural key of the effect, from the job's arguments.
            group_commit: run up to so many jobs one after another in one session, and commit them together. If one
                fails or has lost its lease, all are rolled back and run one by one. Only for short handlers whose
                effects are all in this database: a handler may run twice although it did not fail.
            batch: call the handler with up to so many jobs at once, as a list of :class:`ClaimedJob`; their effects
                and acknowledgements are one commit. If it raises, it is called again with each job alone.

        Raises:
            InvalidArgument: on a name that is taken, or a value out of range.
        """
        _check_together(batch, group_commit)

        def declare(function: Callable[..., Any]) -> Task[Any, Any]:
            return self._add(
                Task(
                    function=function,
                    name=name or function.__name__,
                    options=_Options(queue=queue, max_attempts=max_attempts),
                    visibility_timeout=to_seconds("visibility_timeout", visibility_timeout, least=0.1),
                    backoff=backoff or Backoff(),
                    time_limit=None if time_limit is None else to_seconds("time_limit", time_limit, least=0.1),
                    key_of=dedup_key,
                    _signature=(signature := inspect.signature(function)),
                    _names=_names_of(signature),
                    batch=batch,
                    group_commit=group_commit,
                )
            )

        return declare if function is None else declare(function)

    def _add(self, task: Task[P, R]) -> Task[P, R]:
        check_name("task", task.name)
        check_name("queue", task.queue)
        if task.name in self._tasks:
            msg = f"a task named {task.name!r} exists already; give one of them another name=…"
            raise InvalidArgument(msg)
        self._tasks[task.name] = task
        return task


def _names_of(signature: inspect.Signature) -> frozenset[str] | None:
    parameters = list(signature.parameters.values())[1:]
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return frozenset(each.name for each in parameters) if all(each.kind in named for each in parameters) else None


def _check_together(batch: int | None, group_commit: int | None) -> None:
    if batch is not None and group_commit is not None:
        msg = "give batch or group_commit, not both: a batch is one commit already"
        raise InvalidArgument(msg)
    for what, size in (("batch", batch), ("group_commit", group_commit)):
        if size is not None and (type(size) is not int or not 1 <= size <= MOST_TOGETHER):
            msg = f"{what} must be an int between 1 and {MOST_TOGETHER}; got {size!r}"
            raise InvalidArgument(msg)


def _as_dict(options: _Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in _Options.__dataclass_fields__}
