"""Pruning: one statement deletes what is too old in one bounded piece of one table.

The chosen rows are locked inside a MATERIALIZED CTE, those that others hold are skipped, and exactly they are deleted,
by their place in the heap: no join, so the planner has nothing to choose.

The age is that at the begin of the transaction. At REPEATABLE READ its snapshot is hardly younger; by a later clock a
key could be too old whose job had come in time, but is not to be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    DateTime,
    Interval,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import UserDefinedType

from sa_jobqueue.models import Models, Timestamp
from sa_jobqueue.statements.literals import limit_to, text_literal
from sa_jobqueue.statements.settle import effect_key

__all__ = ["BY_INDEX", "BY_PAGES"]


class _Tid(UserDefinedType[str]):
    """A place in the heap: page and item."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid"


class _Pages(ColumnElement[int]):
    """How many pages the heap of a table has."""

    inherit_cache = False
    type = BigInteger()

    def __init__(self, table: Table) -> None:
        self.table = table


@compiles(_Pages)
def _compile_pages(element: _Pages, compiler: Any, **_: Any) -> str:
    """Between dollars: a schema that is put in later may have quotes."""
    name = compiler.preparer.format_table(element.table)
    return f"pg_relation_size($name${name}$name$::regclass) / current_setting('block_size')::int"


@cache
def _dedup_keys(models: Models) -> Select[Any]:
    """Effects older than ``age``; but none whose key a live job or an open dead letter has, under whatever scope."""
    table, job, dead = (models.table(each) for each in (models.dedup_key, models.job, models.dead_letter))
    aged = _aged(_in_piece(table.c.created_at < _cutoff(), table.c.key))
    some = exists(select(aged.c.key))
    live = select(effect_key(job)).where(some)
    buried = select(effect_key(dead, "job_id")).where(dead.c.redriven_at.is_(None), some)
    # Not a join, nor NOT EXISTS: with an estimate of one old row it would read all live jobs for each of them.
    held = select(aged.c.key).intersect(union_all(live, buried)).cte("held").prefix_with("MATERIALIZED")
    free = select(aged.c.place).where(aged.c.key.not_in(select(held.c.key)))
    return _answer(table, aged, free).add_columns(_Pages(table).label("pages"))


@cache
def _open_dead_letters(models: Models) -> Select[Any]:
    """Dead letters older than ``age`` that nobody has redriven."""
    dead = models.table(models.dead_letter)
    return _by_pages(dead, and_(dead.c.redriven_at.is_(None), dead.c.died_at < _cutoff()))


@cache
def _redriven_dead_letters(models: Models) -> Select[Any]:
    """Dead letters that were redriven longer than ``age`` ago."""
    dead = models.table(models.dead_letter)
    return _by_pages(dead, dead.c.redriven_at < _cutoff())


@cache
def _job_log(models: Models) -> Select[Any]:
    """Runs that ended longer than ``age`` ago, and not before ``since``, the oldest first."""
    table = models.table(models.job_log)
    return _by_index(table, table.c.finished_at, _cutoff())


@cache
def _rollup(models: Models) -> Select[Any]:
    """Counters of minutes that were over ``age`` ago, and not before ``since``, the oldest first."""
    table = models.table(models.rollup)
    return _by_index(table, table.c.minute, func.date_trunc(text_literal("minute"), _cutoff()))


Builder = Callable[[Models], Select[Any]]

BY_PAGES: dict[str, Builder] = {
    "open_dead_letters": _open_dead_letters,
    "redriven_dead_letters": _redriven_dead_letters,
    "dedup_keys": _dedup_keys,
}
"""Walks over the heap, behind the place ``behind`` and before ``before``: there is no index on these ages.

The answer is how many rows were deleted, how many were too old, the place of the last of these, and the pages of all.
"""

BY_INDEX: dict[str, Builder] = {"job_log": _job_log, "rollup": _rollup}
"""The oldest rows by an index, from the instant ``since`` on; a batch does not pass what the ones before it left dead.

The answer is how many rows were deleted, how many were too old, and the time of the last of these.
"""


def _by_pages(table: Table, too_old: ColumnElement[bool]) -> Select[Any]:
    aged = _aged(_in_piece(too_old))
    return _answer(table, aged, select(aged.c.place)).add_columns(_Pages(table).label("pages"))


def _by_index(table: Table, age: ColumnElement[Any], cutoff: ColumnElement[Any]) -> Select[Any]:
    wanted = select(_place().label("place"), age.label("at")).where(
        age < cutoff, age >= bindparam("since", type_=Timestamp)
    )
    aged = _aged(wanted.order_by(age))
    return _answer(table, aged, select(aged.c.place), last=aged.c.at)


def _place() -> ColumnElement[Any]:
    return literal_column("ctid", _Tid())


def _in_piece(too_old: ColumnElement[bool], *more: ColumnElement[Any]) -> Select[Any]:
    """Sorted: a plan may come by an index, and the next piece begins behind the last row of this one."""
    behind, before = (cast(bindparam(name, type_=Text), _Tid) for name in ("behind", "before"))
    rows = select(_place().label("place"), *more).where(too_old, _place() > behind, _place() < before)
    return rows.order_by(_place())


def _aged(rows: Select[Any]) -> CTE:
    return rows.limit(limit_to()).with_for_update(skip_locked=True).cte("aged").prefix_with("MATERIALIZED")


def _answer(table: Table, aged: CTE, places: Select[Any], *, last: ColumnElement[Any] | None = None) -> Select[Any]:
    chosen = func.any(func.array(places.scalar_subquery()))
    gone = delete(table).where(_place() == chosen).returning(literal_column("1").label("one")).cte("gone")
    end = cast(func.max(aged.c.place), Text) if last is None else func.max(last)
    return select(
        select(func.count()).select_from(gone).scalar_subquery().label("pruned"),
        select(func.count()).select_from(aged).scalar_subquery().label("seen"),
        select(end).scalar_subquery().label("last"),
    )


def _cutoff() -> ColumnElement[Any]:
    return func.transaction_timestamp(type_=DateTime(timezone=True)) - cast(bindparam("age", type_=Interval), Interval)
