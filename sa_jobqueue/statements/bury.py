"""How a job becomes a dead letter: the rows that one CTE deletes are what another one inserts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    FromClause,
    Integer,
    Text,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import JSONB

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import now, text_literal
from sa_jobqueue.states import DeathReason

__all__ = ["ERRORS_KEPT", "EXPIRED", "MOVED", "grave", "with_error"]

ERRORS_KEPT = 20
"""Entries of the error history that a job keeps; the oldest goes first."""

EXPIRED = "lease expired"
"""The error text of an attempt whose worker was lost."""

MOVED = (
    "queue",
    "task",
    "args",
    "headers",
    "priority",
    "attempt",
    "max_attempts",
    "token",
    "enqueued_at",
    "dedup_key",
    "unique_key",
)
"""Columns that a job and its dead letter share."""


def grave(models: Models, buried: CTE, reason: DeathReason, *, error: str | None = None) -> CTE:
    """Insert the dead letters of the deleted rows; ``error`` None takes the text from the parameter ``error``."""
    dead = models.table(models.dead_letter)
    rows = select(
        buried.c.id, *(buried.c[name] for name in MOVED), with_error(buried, error), text_literal(reason), now()
    )
    columns = ["job_id", *MOVED, "errors", "reason", "died_at"]
    return insert(dead).from_select(columns, rows).returning(dead.c.job_id).cte("graves")


def with_error(job: FromClause, error: str | None = None) -> ColumnElement[Any]:
    """The job's error history with one more entry: attempt, time, error, worker."""
    history = job.c.errors
    oldest = literal_column("0", Integer)
    kept = case((func.jsonb_array_length(history) >= ERRORS_KEPT, history.op("-")(oldest)), else_=history)
    text = bindparam("error", type_=Text) if error is None else text_literal(error)
    entry = func.jsonb_build_object(
        text_literal("attempt"),
        job.c.attempt,
        text_literal("at"),
        now(),
        text_literal("error"),
        text,
        text_literal("worker"),
        job.c.claimed_by,
    )
    return kept.op("||", return_type=JSONB())(func.jsonb_build_array(entry))
