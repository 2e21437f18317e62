"""Errors that the user can put right: one line and an exit code instead of a traceback."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from sa_jobqueue.embedded import PostgresNotFound
from sa_jobqueue.errors import InvalidArgument, JobQueueError
from sa_jobqueue.worker.poolers import ADVICE, is_mixed_up

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILED", "MISUSED", "Problem", "ending_in_one_line", "explain"]

FAILED: Final = 1
MISUSED: Final = 2

_REFUSALS: Final = {"42501", "25006"}
"""SQLSTATEs: insufficient privilege, and read-only (a standby)."""


class Problem(Exception):
    """What happened and what to do, in one line; ``code`` is the exit code of the process."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        self.code = code
        super().__init__(message)


@contextmanager
def ending_in_one_line() -> Iterator[None]:
    """An expected error inside the block becomes one line on stderr, and ends the process with its exit code."""
    try:
        yield
    except Exception as error:
        problem = explain(error)
        if problem is None:
            raise
        sys.stderr.write(f"sa-jobqueue: {problem}\n")
        sys.exit(problem.code)


def explain(error: Exception) -> Problem | None:
    """The problem behind an expected error; None for one that deserves its traceback."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidArgument):
        return Problem(_one_line(str(error)), code=MISUSED)
    if isinstance(error, (JobQueueError, PostgresNotFound)):
        return Problem(_one_line(str(error)))
    if isinstance(error, DBAPIError):
        return _of_database(error)
    return _of_alembic(error)


def _of_alembic(error: Exception) -> Problem | None:
    from alembic.util import CommandError  # noqa: PLC0415 - most commands work without Alembic, and none fails often

    return Problem(_one_line(str(error)), code=MISUSED) if isinstance(error, CommandError) else None


def _of_database(error: DBAPIError) -> Problem | None:
    """Only what the driver says is shown: SQLAlchemy's own text would hold the statement and its parameters."""
    said = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
    sqlstate = getattr(error.orig, "sqlstate", None)
    if isinstance(error, (OperationalError, InterfaceError)) and sqlstate is None:
        return Problem(f"cannot reach the database: {said[0]}")
    if is_mixed_up(error):
        return Problem(f"{said[0]}, as behind a pooler in transaction mode: {ADVICE}")
    if isinstance(error, OperationalError) or sqlstate in _REFUSALS:
        return Problem(f"the database refused: {said[0]}")
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
