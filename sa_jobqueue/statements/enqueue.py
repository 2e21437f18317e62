"""Inserting jobs, one or many. A job whose ``unique_key`` is taken is left out of the answer, never an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Executable,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REGCLASS, psycopg
from sqlalchemy.dialects.postgresql import Insert as Upsert
from sqlalchemy.dialects.postgresql import insert as upsert

from sa_jobqueue.models import Models, Timestamp
from sa_jobqueue.statements.literals import QUEUED, SCHEDULED, now, seconds, text_literal

__all__ = ["COLUMNS", "COPIED", "copy_in", "enqueue", "enqueue_many", "holders", "reserve_ids"]

COLUMNS: dict[str, Any] = {
    "queue": Text,
    "task": Text,
    "args": JSONB,
    "headers": JSONB,
    "priority": Integer,
    "max_attempts": Integer,
    "delay": Double,
    "run_at": Timestamp,
    "dedup_key": Text,
    "unique_key": Text,
}
"""Parameters of an enqueue; ``delay`` in seconds. JSON travels as text."""

COPIED = ("queue", "task", "args", "headers", "priority", "max_attempts", "dedup_key")
"""Columns of a job that may run at once and has no ``unique_key``."""

_STORED = [name for name in COLUMNS if name not in {"delay", "run_at"}]


@cache
def enqueue(models: Models, *, unique: bool) -> Executable:
    """Insert one job; with ``unique``, no row comes back if a live job holds the key."""
    given = {name: bindparam(name, type_=_sent(name)) for name in COLUMNS}
    job = models.table(models.job)
    values = {name: _stored(given[name], name) for name in _STORED} | _due(given["delay"], given["run_at"])
    return _returning(models, upsert(job).values(values), unique=unique)


@cache
def enqueue_many(models: Models, *, unique: bool) -> Executable:
    """Insert the jobs of parallel arrays in their order, or in the order of their keys if they have any.

    Keys in order keep two bulk calls with the same keys from waiting for each other in a circle.
    """
    given = _given_rows()
    due = _due(given.c.delay, given.c.run_at)
    rows = select(*(_stored(given.c[name], name) for name in _STORED), *due.values())
    rows = rows.order_by(given.c.unique_key if unique else given.c.ordinality)
    job = models.table(models.job)
    return _returning(models, upsert(job).from_select([*_STORED, *due], rows), unique=unique)


@cache
def reserve_ids(models: Models) -> Select[Any]:
    """``ids`` of ``count`` new jobs, in order; None if this role may not take them, or may not COPY into the table.

    The sequence is looked up once, in a CTE: the planner would call a stable function again for each id.
    """
    name = text_literal(_quoted(models.table(models.job)).replace("'", "''"))
    found = select(cast(func.pg_get_serial_sequence(name, text_literal("id")), REGCLASS).label("name"))
    sequence = found.cte("sequence").prefix_with("MATERIALIZED")
    allowed = and_(func.has_sequence_privilege(sequence.c.name, text_literal("USAGE")), ~func.row_security_active(name))
    each = func.generate_series(1, bindparam("count", type_=Integer)).table_valued("n").render_derived(name="each")
    ids = func.array_agg(func.nextval(sequence.c.name), type_=ARRAY(BigInteger))
    return select(ids.label("ids")).select_from(sequence.join(each, true())).where(allowed)


@cache
def copy_in(models: Models) -> str:
    """COPY of rows of an id and ``COPIED``; what is left out has its default, so such a job may run at once."""
    return f"COPY {_quoted(models.table(models.job))} (id, {', '.join(COPIED)}) FROM STDIN"


def _quoted(table: Table) -> str:
    dialect: Any = psycopg.dialect
    quoted: str = dialect().identifier_preparer.format_table(table)
    return quoted


@cache
def holders(models: Models) -> Select[Any]:
    """The live jobs that hold one of ``keys``."""
    job = models.table(models.job)
    keys = bindparam("keys", type_=ARRAY(Text))
    return select(job.c.id, job.c.status, job.c.unique_key).where(job.c.unique_key == func.any(keys))


def _given_rows() -> Any:
    arrays = [bindparam(name, type_=ARRAY(_sent(name))) for name in COLUMNS]
    return func.unnest(*arrays).table_valued(*COLUMNS, with_ordinality="ordinality").render_derived(name="given")


def _sent(name: str) -> Any:
    return Text if COLUMNS[name] is JSONB else COLUMNS[name]


def _stored(column: ColumnElement[Any], name: str) -> ColumnElement[Any]:
    return cast(column, JSONB) if COLUMNS[name] is JSONB else column


def _due(delay: ColumnElement[Any], run_at: ColumnElement[Any]) -> dict[str, ColumnElement[Any]]:
    """Status and time of a new row; a delay counts from now by the database's clock."""
    waits = func.coalesce(cast(run_at, Timestamp), now() + seconds(cast(delay, Double)))
    return {"status": case((waits.is_(None), QUEUED), else_=SCHEDULED), "visible_at": func.coalesce(waits, now())}


def _returning(models: Models, statement: Upsert, *, unique: bool) -> Executable:
    job = models.table(models.job)
    if unique:
        statement = statement.on_conflict_do_nothing(
            index_elements=[job.c.unique_key], index_where=job.c.unique_key.is_not(None)
        )
    return statement.returning(cast(job.c.id, BigInteger).label("id"), job.c.status, job.c.unique_key)
