"""Declaring handlers, and finding them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import InvalidArgument, UnknownTask
from sa_jobqueue.models import Models
from sa_jobqueue.session import DEFAULT_VISIBILITY_TIMEOUT
from sa_jobqueue.tasks.arguments import Arguments
from sa_jobqueue.tasks.options import Options
from sa_jobqueue.tasks.task import Task
from sa_jobqueue.values import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, ClaimedJob, check_name, to_seconds

__all__ = ["MOST_TOGETHER", "TaskRegistry"]

P = ParamSpec("P")
R = TypeVar("R")

MOST_TOGETHER = 1_000
"""Jobs that one transaction may hold."""


class _Declare(Protocol):
    """A decorator that keeps the handler's parameters and answer."""

    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class _DeclareBatch(Protocol):
    """A decorator for a handler of several jobs; their arguments are known to the handler alone."""

    def __call__(self, function: Callable[[Any, list[ClaimedJob]], R], /) -> Task[..., R]: ...


class TaskRegistry:
    """The tasks that an application knows. Two tasks cannot share a name.

    Args:
        models: the mapped classes of the tables that its jobs are in, if they are not the ready-made ones: its tasks
            enqueue there, and its worker claims there.
    """

    def __init__(self, *, models: Models | None = None) -> None:
        self.models = models
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
        core: bool = False,
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
        core: bool = False,
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
        core: bool = False,
    ) -> Any:
        """Declare a handler; its first parameter is the session (or connection), the others are the job's arguments.

        Args:
            function: the handler, when used as a bare ``@tasks.task``.
            name: what the job's row calls it; the function's name by default. Keep it when you rename the function.
            queue: where its jobs go.
            max_attempts: claims without an ack before a job is a dead letter.
            visibility_timeout: how long a job stays with a worker whose heartbeat has stopped; timedelta or seconds.
            backoff: how long a failed job waits.
            time_limit: after this long a run is ended from outside; timedelta or seconds.
            dedup_key: the natural key of the effect, from the job's arguments.
            group_commit: run up to so many jobs one after another in one session (or on one connection), and commit
                them together. If one fails or has lost its lease, all are rolled back and run one by one. Only for
                short handlers whose effects are all in this database: a handler may run twice although it did not fail.
            batch: call the handler with up to so many jobs at once, as a list of :class:`ClaimedJob`; their effects
                and acknowledgements are one commit. If it raises, it is called again with each job alone.
            core: give the handler a ``Connection``, or an ``AsyncConnection``, instead of a session: for handlers that
                need no unit of work, which then costs nothing. The worker commits it with the acknowledgement.

        Raises:
            InvalidArgument: on a name that is taken, or a value out of range.
        """
        _check_together(batch, group_commit)

        def declare(function: Callable[..., Any]) -> Task[Any, Any]:
            called = name or function.__name__
            return self._add(
                Task(
                    function=function,
                    name=called,
                    options=Options(queue=queue, max_attempts=max_attempts),
                    visibility_timeout=to_seconds("visibility_timeout", visibility_timeout, least=0.1),
                    backoff=backoff or Backoff(),
                    time_limit=None if time_limit is None else to_seconds("time_limit", time_limit, least=0.1),
                    key_of=dedup_key,
                    arguments=Arguments.of(called, function, batch=batch is not None),
                    models=self.models,
                    batch=batch,
                    group_commit=group_commit,
                    core=core,
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


def _check_together(batch: int | None, group_commit: int | None) -> None:
    if batch is not None and group_commit is not None:
        msg = "give batch or group_commit, not both: a batch is one commit already"
        raise InvalidArgument(msg)
    for what, size in (("batch", batch), ("group_commit", group_commit)):
        if size is not None and (type(size) is not int or not 1 <= size <= MOST_TOGETHER):
            msg = f"{what} must be an int between 1 and {MOST_TOGETHER}; got {size!r}"
            raise InvalidArgument(msg)
