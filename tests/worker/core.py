"""What Core handlers do here, and the three jobs that they do it for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, insert
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from tests.behaviour.business import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Connection, Engine

    from sa_jobqueue import EnqueuedJob

    Act = Callable[[Connection, str], object]

NAMES = ("first", "second", "third")
"""The first ack of a connection is prepared, and sent apart; the next ones may go with their COMMIT."""


def write(connection: Connection, name: str) -> None:
    """Have an effect."""
    connection.execute(insert(Effect).values(name=name))


def before_the_second(act: Callable[[Connection], object]) -> Act:
    """Each has its effect, and the second does something before it."""

    def task(connection: Connection, name: str) -> None:
        if name == "second":
            act(connection)
        write(connection, name)

    return task


def instead_of_the_second(act: Callable[[Connection], object]) -> Act:
    """Each has its effect, but the second does something else."""

    def task(connection: Connection, name: str) -> None:
        if name == "second":
            act(connection)
        else:
            write(connection, name)

    return task


def enqueue_three(enqueue: Callable[..., EnqueuedJob], task: str = "task") -> list[EnqueuedJob]:
    return [enqueue(task, {"name": name}, max_attempts=1) for name in NAMES]


@dataclass(frozen=True, slots=True)
class Both:
    """The engines of an application that has functions and coroutine functions."""

    sync: Engine
    later: AsyncEngine

    @classmethod
    def of(cls, url: URL, **options: Any) -> Both:
        return cls(create_engine(url, **options), create_async_engine(url, **options))

    def with_options(self, **options: Any) -> Both:
        """With other execution options."""
        return Both(self.sync.execution_options(**options), self.later.execution_options(**options))

    @property
    def each(self) -> tuple[Engine, Engine]:
        """As SQLAlchemy sees them, for its events."""
        return self.sync, self.later.sync_engine

    @property
    def makers(self) -> dict[str, Any]:
        """The options of a worker."""
        return {"sessionmaker": sessionmaker(self.sync), "async_sessionmaker": async_sessionmaker(self.later)}
