"""A worker process of the fleet: ``python -m sa_jobqueue.testing.chaos.crew ORDERS``, the database in its environment.

``ORDERS`` is JSON of :class:`Orders`. The process begins to work when it reads a byte from stdin, so that one that is
ready can step in at once, and it ends when the process that started it is gone.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import sessionmaker

from sa_jobqueue.observe import Event, LeaseWasLost, RunEnded, RunStarted, WorkerStarted, log_event
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.testing.chaos.history import Deed, Journal, Kind
from sa_jobqueue.testing.chaos.work import HAS_ASYNC, QUEUE, Notebook, make_tasks
from sa_jobqueue.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["LEASE_LOST", "URL_VARIABLE", "Orders", "main"]

URL_VARIABLE: Final = "SA_JOBQUEUE_CHAOS_URL"
LEASE_LOST: Final = "lease lost"

_SPARE: Final = 4
"""Connections of the pools beyond one for each handler: a given-up handler keeps its own for a while."""
_ROLES: Final = {"MainThread": "loop", "sa-jobqueue-keeper": "keeper", "sa-jobqueue-loop": "async"}


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker process is told: its name, the folder of the journals, lease in seconds, handlers at a time."""

    name: str
    folder: str
    lease: float
    concurrency: int

    def as_text(self) -> str:
        """The argument of the command."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Back from the argument."""
        return cls(**json.loads(text))


class Reporter:
    """Writes the worker's events to its journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @singledispatchmethod
    def tell(self, event: Event) -> None:
        """Other events are only logged."""

    @tell.register
    def _(self, event: WorkerStarted) -> None:
        self._journal.write(Kind.OK, Deed.SERVE, note=event.worker)

    @tell.register
    def _(self, event: RunStarted) -> None:
        self._journal.write(Kind.OK, Deed.CLAIM, event.job.args["tag"], token=event.job.token)

    @tell.register
    def _(self, event: RunEnded) -> None:
        self._journal.write(Kind.OK, Deed.SETTLE, event.job.args["tag"], token=event.job.token, note=event.outcome)

    @tell.register
    def _(self, event: LeaseWasLost) -> None:
        self._journal.write(Kind.FAIL, Deed.SETTLE, event.job.args["tag"], token=event.job.token, note=LEASE_LOST)


def main(make: Callable[[Notebook, float], TaskRegistry] = make_tasks) -> None:
    """The program: wait for the word, then work until SIGTERM, on the handlers that ``make`` builds."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    if os.read(sys.stdin.fileno(), 1):
        threading.Thread(target=_leave_with_the_owner, daemon=True).start()
        serve(Orders.of(sys.argv[1]), make)


def serve(orders: Orders, make: Callable[[Notebook, float], TaskRegistry]) -> None:
    """Work until SIGTERM, on the handlers that ``make`` builds."""
    url, journal = os.environ[URL_VARIABLE], Journal(Path(orders.folder), orders.name)
    room = orders.concurrency + _SPARE
    notebook = Notebook(journal, create_engine(url, pool_size=room, pool_pre_ping=True))
    Worker(
        make(notebook, orders.lease),
        sessionmaker(_named(create_engine(url, pool_size=room))),
        async_sessionmaker=_async_sessions(url, room) if HAS_ASYNC else None,
        queues=[QUEUE],
        concurrency=orders.concurrency,
        name=orders.name,
        poll_interval=0.2,
        sweep_interval=0.3,
        grace=orders.lease,
        subscribers=(log_event, Reporter(journal).tell),
    ).run()


def _leave_with_the_owner() -> None:
    """The owner holds the other end of stdin; the end of file is its end, by SIGKILL too."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _async_sessions(url: str, room: int) -> Any:
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine  # noqa: PLC0415 - greenlet is an extra

    engine: AsyncEngine = create_async_engine(url, pool_size=room)
    _named(engine.sync_engine)
    return async_sessionmaker(engine)


def _named(engine: Engine) -> Engine:
    """Let each connection carry the role of the thread that opens it, for whoever wants to end one of a role."""

    def name(_dialect: object, _record: object, _arguments: list[Any], parameters: dict[str, Any]) -> None:
        role = _ROLES.get(threading.current_thread().name, "handler")
        parameters["application_name"] = f"chaos-{role}"

    event.listen(engine, "do_connect", name)
    return engine


if __name__ == "__main__":
    main()
