"""What runs in a worker's process: the application's handlers, and our ``Worker`` as its users start it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from benchmarks.business import TASK, Effect
from benchmarks.laps import WARM, Lap, Stopwatch
from sa_jobqueue import ClaimedJob, TaskRegistry, Worker
from sa_jobqueue.observe import Event, RunEnded, log_event

__all__ = ["HANDLERS", "INSERT", "ON_CONNECTION", "Plan", "application_engine", "knows", "work", "worker_of"]

ON_CONNECTION: Final[Mapping[str, Any]] = {"core": True}
"""The option of a task whose handler works on a connection; the handlers ``core`` can, and in a session too."""
INSERT: Final = insert(Effect.__table__)  # type: ignore[arg-type]  # a mapped class has a Table here


@dataclass(frozen=True, slots=True)
class Plan:
    """How a worker is set up: the name of its handler, options of the task and of the ``Worker``."""

    handler: str
    concurrency: int
    task: Mapping[str, Any] = field(default_factory=dict)
    worker: Mapping[str, Any] = field(default_factory=dict)
    warm: int = WARM


def knows(option: str) -> bool:
    """True if the task decorator of this release has the option."""
    return option in inspect.signature(TaskRegistry.task).parameters


def work(url: str, plan: Plan) -> Lap:
    """Drain the queue as one worker process."""
    watch = Stopwatch(plan.warm)
    worker_of(url, plan, HANDLERS[plan.handler](watch), watch).run(until_empty=True)
    return watch.lap()


def worker_of(
    url: str,
    plan: Plan,
    handler: Callable[..., Any],
    watch: Stopwatch,
    *,
    also: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = MappingProxyType({}),
    hear: Callable[[Event], None] = log_event,
    queues: Sequence[str] | None = None,
) -> Worker:
    """A worker with one task, and others by name with their options; the watch hears of every commit."""

    def time(event: Event) -> None:
        if type(event) is RunEnded:
            watch.ended()

    tasks = TaskRegistry()
    for name, (function, options) in {TASK: (handler, plan.task), **also}.items():
        declare: Any = tasks.task(name=name, **options)
        declare(function)
    sessions: dict[str, Any] = {"sessionmaker": sessionmaker(application_engine(url, plan.concurrency))}
    if inspect.iscoroutinefunction(handler):
        engine = create_async_engine(url, pool_size=plan.concurrency)
        sessions = {"async_sessionmaker": async_sessionmaker(engine, expire_on_commit=False)}
    return Worker(
        tasks,
        **sessions,
        concurrency=plan.concurrency,
        **{"queues": queues, "subscribers": (hear, time), **plan.worker},
    )


def application_engine(url: str, concurrency: int, **options: Any) -> Engine:
    """An engine like a user's, with one connection for each thread."""
    return create_engine(url, pool_size=concurrency, **options)


def _orm(watch: Stopwatch) -> Callable[..., Any]:
    def record(session: Session, n: int) -> None:
        watch.started()
        session.add(Effect(n=n))

    return record


def _orm_flush(watch: Stopwatch) -> Callable[..., Any]:
    def record(session: Session, n: int) -> None:
        watch.started()
        session.add(Effect(n=n))
        session.flush()

    return record


def _core(watch: Stopwatch) -> Callable[..., Any]:
    def record(given: Session | Connection, n: int) -> None:
        watch.started()
        given.execute(INSERT, {"n": n})

    return record


def _noop(watch: Stopwatch) -> Callable[..., Any]:
    def record(session: Session, n: int) -> None:  # noqa: ARG001 (a handler's parameters)
        watch.started()

    return record


def _batch(watch: Stopwatch) -> Callable[..., Any]:
    def record(session: Session, jobs: list[ClaimedJob]) -> None:
        watch.started(len(jobs))
        session.add_all(Effect(n=job.args["n"]) for job in jobs)

    return record


def _async_orm(watch: Stopwatch) -> Callable[..., Any]:
    async def record(session: AsyncSession, n: int) -> None:
        watch.started()
        session.add(Effect(n=n))

    return record


def _async_core(watch: Stopwatch) -> Callable[..., Any]:
    async def record(given: AsyncSession | AsyncConnection, n: int) -> None:
        watch.started()
        await given.execute(INSERT, {"n": n})

    return record


HANDLERS: Final[Mapping[str, Callable[[Stopwatch], Callable[..., Any]]]] = {
    "orm": _orm,
    "orm_flush": _orm_flush,
    "core": _core,
    "noop": _noop,
    "batch": _batch,
    "async_orm": _async_orm,
    "async_core": _async_core,
}
"""By name, since a plan travels to another process; each is made for the watch that it tells of its start."""
