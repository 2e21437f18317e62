"""What a worker checks and prepares before its first poll."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, create_engine, make_url

from sa_jobqueue.errors import WorkerMisconfigured
from sa_jobqueue.models import Models
from sa_jobqueue.tasks import Task, TaskRegistry
from sa_jobqueue.worker.line import most_connections

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = [
    "breadths",
    "check_isolation",
    "check_pool",
    "check_tasks",
    "default_name",
    "dispose",
    "engine_of",
    "home_engine",
    "lanes",
    "models_of",
    "requeue_jitter",
]


def default_name() -> str:
    """Host, process and a random part: a name that comes back after a crash must not look like its old bearer."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def lanes(tasks: TaskRegistry, queues: Iterable[str] | None) -> dict[str, dict[str, float]]:
    """For each queue to serve, the visibility timeout in seconds of every task that this worker knows.

    A job may sit in another queue than its task's own, so each queue is asked for all tasks.
    """
    served = tuple(dict.fromkeys(queues)) if queues is not None else tuple(sorted({task.queue for task in tasks}))
    leases = {task.name: task.visibility_timeout for task in tasks}
    return dict.fromkeys(served, leases)


def breadths(tasks: TaskRegistry) -> dict[str, int]:
    """For each queue of a task, how many of its jobs one turn may take."""
    widest: dict[str, int] = {}
    for task in tasks:
        widest[task.queue] = max(task.together, widest.get(task.queue, 1))
    return widest


def requeue_jitter(wanted: float, tasks: TaskRegistry) -> float:
    """Seconds by which a sweep may be late: a lost job of a short lease should not wait for long because of it."""
    return min(wanted, *(task.visibility_timeout / 4 for task in tasks))


def check_tasks(tasks: TaskRegistry, *, sync: bool, asynchronous: bool) -> None:
    """Refuse a worker that could not run what it claims.

    Raises:
        WorkerMisconfigured: without tasks, or without the kind of session that a task needs.
    """
    if not len(tasks):
        msg = "the registry has no tasks; import the modules that declare them before the worker starts"
        raise WorkerMisconfigured(msg)
    _check_kind([task for task in tasks if not task.is_async], "sessionmaker", given=sync)
    _check_kind([task for task in tasks if task.is_async], "async_sessionmaker", given=asynchronous)


def models_of(tasks: TaskRegistry, given: Models | None) -> Models:
    """Those of the registry, if it was told of any: what its tasks enqueue has to be what its worker claims.

    Raises:
        WorkerMisconfigured: others were given.
    """
    if given is not None and tasks.models is not None and given != tasks.models:
        msg = (
            f"the tasks enqueue into {_name_of(tasks.models)}, and this worker would claim from {_name_of(given)}; "
            f"give the mapped classes to the registry: TaskRegistry(models=…)"
        )
        raise WorkerMisconfigured(msg)
    return given or tasks.models or Models()


def home_engine(factory: Callable[[], Any], models: Models) -> Engine:
    """The engine that the factory's sessions use for the jobs table; a sync engine also for async sessions.

    Raises:
        WorkerMisconfigured: if they are bound to a single connection, on which nothing can run at the same time.
    """
    session = factory()
    bind = getattr(session, "sync_session", session).get_bind(mapper=models.job)
    if not isinstance(bind, Engine):
        msg = (
            "the sessionmaker is bound to one connection; a worker needs an engine. In a test, drain the queue instead"
        )
        raise WorkerMisconfigured(msg)
    return bind


def engine_of(url: str | URL) -> Engine:
    """An engine for psycopg, whichever driver the URL names."""
    return create_engine(make_url(url).set(drivername="postgresql+psycopg"))


async def dispose(factory: Callable[[], AsyncSession]) -> None:
    """Close the connections that the worker's event loop opened: no other loop can use them."""
    bind = factory().bind
    if bind is not None and hasattr(bind, "dispose"):
        await bind.dispose()


def check_pool(home: Engine, concurrency: int) -> None:
    """Refuse a pool that is too small for the handlers.

    Raises:
        WorkerMisconfigured: names the number of connections that it takes.
    """
    most = most_connections(home.pool)
    if most < concurrency:
        msg = (
            f"{concurrency} handlers at a time need a pool of {concurrency} connections, and this engine's allows "
            f"{most}; raise pool_size or max_overflow, or lower the concurrency"
        )
        raise WorkerMisconfigured(msg)


def check_isolation(home: Engine) -> None:
    """Refuse an engine whose statements commit one by one, before the job is acknowledged.

    Only what SQLAlchemy was told is seen here; each transaction of a handler is looked at when it begins.

    Raises:
        WorkerMisconfigured: names the level that it takes.
    """
    default = getattr(home.dialect, "_on_connect_isolation_level", None)
    if home.get_execution_options().get("isolation_level", default) == "AUTOCOMMIT":
        msg = (
            "the engine is in isolation level AUTOCOMMIT, where a handler's effect commits before its job is "
            "acknowledged, and so perhaps twice; bind the sessionmaker to an engine with "
            "isolation_level='READ COMMITTED'"
        )
        raise WorkerMisconfigured(msg)


def _name_of(models: Models) -> str:
    return models.table(models.job).fullname


def _check_kind(tasks: list[Task[Any, Any]], what: str, *, given: bool) -> None:
    if tasks and not given:
        names = ", ".join(task.name for task in tasks)
        msg = f"{names}: such a handler needs the worker's {what}=…"
        raise WorkerMisconfigured(msg)
