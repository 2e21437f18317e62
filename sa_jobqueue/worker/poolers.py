"""Telling that a pooler in transaction mode stands before the server, and that the engine does not know of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import WorkerMisconfigured

__all__ = ["ADVICE", "is_mixed_up", "is_pooled", "naming_the_pooler", "prepares"]

ADVICE: Final = (
    'give the engine connect_args={"prepare_threshold": None}, or the command\'s URL ?prepare_threshold=none '
    "(docs/how-to/poolers.md)"
)
_MIXED_UP: Final = frozenset({"26000", "42P05"})
"""SQLSTATEs: a prepared statement is not there, or is there already."""


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
        msg = f"prepared statements get lost, as behind a pooler in transaction mode: {ADVICE}"
        raise WorkerMisconfigured(msg) from error


def is_mixed_up(error: BaseException) -> bool:
    """Whether a prepared statement was not on the server connection where the driver had left it."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _MIXED_UP


def is_pooled(connection: Connection) -> bool:
    """Whether somebody answers in the server's place: poolers hand out a process number of their own making."""
    told = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
    return bool(told != connection.scalar(text("SELECT pg_backend_pid()")))


def prepares(connection: Connection) -> bool:
    """Whether psycopg prepares what it has sent often enough."""
    return connection.connection.driver_connection.prepare_threshold is not None  # type: ignore[union-attr]
