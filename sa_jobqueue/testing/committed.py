"""Committed mode: real workers on committed rows, in a database that is emptied afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, exists, inspect, literal, select, table, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker

from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.models import Models
from sa_jobqueue.observe import Event, log_event
from sa_jobqueue.worker import Worker

if TYPE_CHECKING:
    from sqlalchemy import Engine, FromClause
    from sqlalchemy.orm import Session

    from sa_jobqueue.tasks import TaskRegistry

__all__ = ["Committed", "empty_tables", "refuse_leftovers"]

_LOCK_TIMEOUT = "5s"


@dataclass(frozen=True, slots=True)
class Committed:
    """What a test in committed mode works with. ``tables`` are those of the application that are emptied too."""

    engine: Engine
    tasks: TaskRegistry
    models: Models | None = None
    tables: tuple[Any, ...] = ()

    @property
    def sessions(self) -> sessionmaker[Session]:
        """Makes sessions that really commit."""
        return sessionmaker(self.engine)

    @property
    def cleaned(self) -> list[FromClause]:
        """The tables that the test may fill: the queue's own, then the application's."""
        models = self.models or self.tasks.models or Models()
        ours = (models.job, models.dedup_key, models.dead_letter, models.job_log, models.rollup)
        return [_as_table(each) for each in (*ours, *self.tables)]

    def work(self, **options: Any) -> list[Event]:
        """Run one real worker until nothing is left to do; the answer is what it told its subscribers.

        It waits for retries as long as their backoff says. The options are those of :class:`sa_jobqueue.Worker`.
        """
        events: list[Event] = []
        subscribers = (*options.pop("subscribers", (log_event,)), events.append)
        given = {"models": self.models, **options}
        Worker(self.tasks, self.sessions, subscribers=subscribers, **given).run(until_empty=True)
        return events


def empty_tables(engine: Engine, tables: Sequence[Any]) -> None:
    """Empty ``tables`` (mapped classes, ``Table`` objects or names) in one transaction of its own.

    Raises:
        JobQueueError: if a session that the test left open still holds one of them.
    """
    quote = engine.dialect.identifier_preparer
    names = ", ".join(quote.format_table(_as_table(each)) for each in tables)
    try:
        with engine.begin() as connection:
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
            connection.execute(text(f"TRUNCATE {names}"))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != "55P03":
            raise
        msg = f"the tables could not be emptied within {_LOCK_TIMEOUT}: a session of the test is still in a transaction"
        raise JobQueueError(msg) from error


def refuse_leftovers(engine: Engine, tables: Sequence[Any]) -> None:
    """Refuse tables that hold rows already: they are another test's, or not a test's at all.

    Raises:
        JobQueueError: names those tables.
    """
    with engine.connect() as connection:
        full = [str(each) for each in map(_as_table, tables) if connection.scalar(_any_row(each))]
    if full:
        msg = (
            f"{', '.join(full)}: rows from before this test, which would be deleted with its own. Use a database "
            f"that only tests use; if it is, an earlier test committed: sa_jobqueue.testing.empty_tables() once"
        )
        raise JobQueueError(msg)


def _any_row(source: FromClause) -> Any:
    return select(exists(select(literal(1)).select_from(source)))


def _as_table(given: Any) -> Any:
    if isinstance(given, str):
        schema, _, name = given.rpartition(".")
        return table(name, schema=schema or None)
    return given if isinstance(given, Table) else inspect(given).local_table
