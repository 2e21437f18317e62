"""Many jobs at once by COPY, inside the caller's transaction.

COPY answers nothing, so the ids are taken from the sequence first. Where the role may not do that, or row-level
security forbids COPY, the jobs go by INSERT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from sa_jobqueue.models import Models
from sa_jobqueue.statements import enqueue
from sa_jobqueue.wire import on_driver, send, speaks_psycopg

__all__ = ["LEAST", "copy_jobs"]

LEAST = 200
"""Fewer jobs are inserted: a COPY takes one round trip more."""


def copy_jobs(connection: Connection, models: Models, rows: Sequence[tuple[Any, ...]]) -> list[int] | None:
    """Insert queued jobs, given by the values of ``enqueue.COPIED``; the answer is their ids, in order.

    None: that is not possible here, and nothing was done.
    """
    if not speaks_psycopg(connection):
        return None
    ids: list[int] | None = send(connection, enqueue.reserve_ids(models), {"count": len(rows)}).scalar_one()
    if ids is None:
        return None
    _copy(connection, enqueue.copy_in(models), ((job_id, *row) for job_id, row in zip(ids, rows, strict=True)))
    return ids


def _copy(connection: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Past SQLAlchemy, which knows no COPY; errors become its own all the same."""
    dbapi: Any = connection.connection.dbapi_connection
    with on_driver(connection, statement):
        if connection.dialect.is_async:
            dbapi.run_async(partial(_write_async, statement, rows))
        else:
            _write(statement, rows, dbapi)


def _write(statement: str, rows: Iterable[tuple[Any, ...]], driver: Any) -> None:
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


async def _write_async(statement: str, rows: Iterable[tuple[Any, ...]], driver: Any) -> None:
    async with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            await copy.write_row(row)
