"""Telling that a pooler in transaction mode stands before the server, and that the engine does not know of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import WorkerMisconfigured

__all__ = ["ADVICE", "check", "is_mixed_up", "is_pooled", "naming_the_pooler", "prepares"]

ADVICE: Final = (
    'give the engine connect_args={"prepare_threshold": None}, or the command\'s URL ?prepare_threshold=none '
    "(docs/how-to/poolers.md)"
)
_MESSAGE: Final = f"prepared statements get lost, as behind a pooler in transaction mode: {ADVICE}"
_MIXED_UP: Final = frozenset({"26000", "42P05"})
"""SQLSTATEs: a prepared statement is not there, or is there already."""


def check(*engines: Engine) -> None:
    """Refuse to work through a pooler that hands one client's prepared statements to another.

    All clients of psycopg give their statements the same names. So behind such a pooler they get errors, and in the
    worst case the other one's statement is what is executed. Here the first statement of each engine is prepared in
    turn: one server connection gets both, and refuses the second. A pooler in session mode, or one that keeps track
    of prepared statements, passes; a busy one may pass by chance.

    Raises:
        WorkerMisconfigured: names the argument that the engine needs.
    """
    for engine in engines:
        with engine.connect() as connection:
            if not (is_pooled(connection) and prepares(connection)):
                return
            try:
                _driver(connection).execute("SELECT 'sa_jobqueue looks for a pooler'", prepare=True)
            except (DuplicatePreparedStatement, InvalidSqlStatementName) as error:
                connection.invalidate()
                raise WorkerMisconfigured(_MESSAGE) from error
            connection.commit()  # at a rollback psycopg would forget its statements, on the server too


@contextmanager
def naming_the_pooler() -> Iterator[None]:
    """An error that only a pooler can cause becomes one that names it.

    Raises:
        WorkerMisconfigured: transactions of one connection reach several server connections, and each has its own
            prepared statements.
    """
    try:
        yield
    except DBAPIError as error:
        if not is_mixed_up(error):
            raise
        raise WorkerMisconfigured(_MESSAGE) from error


def is_mixed_up(error: BaseException) -> bool:
    """Whether a prepared statement was not on the server connection where the driver had left it."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _MIXED_UP


def is_pooled(connection: Connection) -> bool:
    """Whether somebody answers in the server's place: poolers hand out a process number of their own making."""
    return bool(_driver(connection).info.backend_pid != connection.scalar(text("SELECT pg_backend_pid()")))


def prepares(connection: Connection) -> bool:
    """Whether psycopg prepares what it has sent often enough."""
    return _driver(connection).prepare_threshold is not None


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection
