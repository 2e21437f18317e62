"""States as literals: with a bound status a generic plan cannot use the partial indexes, and walks other rows.

Parameters here are never named like a column of the table that their statement updates (``for_queue``, not ``queue``):
SQLAlchemy takes an execution parameter of a column's name for one more column to set.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, DateTime, Integer, Interval, Text, bindparam, func, literal_column

from sa_jobqueue.states import State

__all__ = ["CLAIMED", "DUE_STATES", "QUEUED", "SCHEDULED", "after", "limit_to", "now", "seconds", "text_literal"]


def text_literal(constant: str) -> ColumnElement[str]:
    """A constant of ours as an SQL literal; never for a value from outside."""
    return literal_column(f"'{constant}'", Text)


QUEUED = text_literal(State.QUEUED)
SCHEDULED = text_literal(State.SCHEDULED)
CLAIMED = text_literal(State.CLAIMED)
DUE_STATES = (SCHEDULED, CLAIMED)
"""The states of the due index, in the order of its predicate."""


def now() -> ColumnElement[Any]:
    """The database's clock: it moves inside a transaction, and may still be an index condition."""
    return func.statement_timestamp(type_=DateTime(timezone=True))


def after(parameter: str) -> ColumnElement[Any]:
    """The instant ``parameter`` (an interval) from now."""
    return now() + bindparam(parameter, type_=Interval, value=timedelta(0))


def seconds(count: ColumnElement[Any]) -> ColumnElement[Any]:
    """A number of seconds as an interval."""
    return literal_column("interval '1 second'", Interval).op("*", return_type=Interval())(count)


def limit_to(parameter: str = "limit") -> Any:
    """A LIMIT rendered as a literal: bound, it makes the planner guess a tenth of the table."""
    return bindparam(parameter, type_=Integer, literal_execute=True)
