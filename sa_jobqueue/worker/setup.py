"""What a worker checks and prepares before its first poll."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import NullPool, QueuePool

from sa_jobqueue.errors import WorkerMisconfigured
from sa_jobqueue.models import Models
from sa_jobqueue.tasks import Task, TaskRegistry

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["breadths", "check_pool", "check_tasks", "control_engine", "default_name", "dispose", "home_engine", "lanes"]

_DRIVER = "psycopg"


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


@contextmanager
def control_engine(home: Engine) -> Iterator[Engine]:
    """An engine with the same connection settings and a pool of its own, in READ COMMITTED."""
    if home.dialect.name != "postgresql":
        msg = f"a worker needs PostgreSQL; the sessionmaker is bound to {home.dialect.name}"
        raise WorkerMisconfigured(msg)
    given: dict[str, Any] = {"hide_parameters": home.hide_parameters}
    if home.dialect.is_async or home.dialect.driver != _DRIVER:
        given["connect_args"] = _connect_arguments(home) if home.dialect.driver == _DRIVER else {}
        engine = create_engine(home.url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, **given)
    else:
        engine = create_engine(home.url, pool=home.pool.recreate(), **given)
    options = {**home.get_execution_options(), "isolation_level": "READ COMMITTED"}
    try:
        yield engine.execution_options(**options)
    finally:
        engine.dispose()


class _NotConnected(Exception):
    """Carries what a connection would have been made with."""


def _connect_arguments(home: Engine) -> dict[str, Any]:
    """What the application's engine hands to psycopg: a worker behind a pooler needs its ``prepare_threshold`` too.

    SQLAlchemy keeps the argument ``connect_args`` in a closure and shows it only to whoever is about to connect.
    """
    this_thread = threading.get_ident()

    def catch(_dialect: object, _record: object, _arguments: object, given: dict[str, Any]) -> None:
        if threading.get_ident() == this_thread:  # the application may be connecting meanwhile
            raise _NotConnected(given)

    event.listen(home, "do_connect", catch, insert=True)
    try:
        home.pool.recreate().connect()
    except _NotConnected as caught:
        return {name: value for name, value in caught.args[0].items() if name != "context"}  # adapters of that dialect
    finally:
        event.remove(home, "do_connect", catch)
    return {}


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
    pool = home.pool
    if isinstance(pool, NullPool):
        return
    overflow = getattr(pool, "_max_overflow", 0)
    most = pool.size() + overflow if isinstance(pool, QueuePool) else 1
    if overflow >= 0 and most < concurrency:
        msg = (
            f"{concurrency} handlers at a time need a pool of {concurrency} connections, and this engine's allows "
            f"{most}; raise pool_size or max_overflow, or lower the concurrency"
        )
        raise WorkerMisconfigured(msg)


def _check_kind(tasks: list[Task[Any, Any]], what: str, *, given: bool) -> None:
    if tasks and not given:
        names = ", ".join(task.name for task in tasks)
        msg = f"{names}: such a handler needs the worker's {what}=…"
        raise WorkerMisconfigured(msg)
