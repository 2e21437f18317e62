"""Counting runs: each server process adds to rows of its own, so that no count waits for another's commit."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Interval,
    Select,
    SmallInteger,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import Insert as Upsert
from sqlalchemy.dialects.postgresql import insert as upsert

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import now, text_literal
from sa_jobqueue.states import Outcome

__all__ = ["OUTCOME", "SECONDS", "add", "expiries", "window"]

SECONDS = "seconds"
OUTCOME = -1
"""The bucket of a row that counts an outcome rather than a duration."""


@cache
def add(models: Models) -> Upsert:
    """Add the parallel arrays ``queues, tasks, metrics, buckets, counts`` to the current minute."""
    arrays = {"queues": Text, "tasks": Text, "metrics": Text, "buckets": SmallInteger, "counts": BigInteger}
    given = func.unnest(*(bindparam(name, type_=ARRAY(kind)) for name, kind in arrays.items()))
    rows = given.table_valued("queue", "task", "metric", "bucket", "count").render_derived(name="given")
    return _adding(models, rows, rows.c.metric, rows.c.bucket, rows.c.count)


def expiries(models: Models, rows: FromClause) -> CTE:
    """Count the rows of a sweep or claim whose lease had expired: re-queued, or dead if ``exhausted``."""
    metric = case((rows.c.exhausted, text_literal(Outcome.DEAD)), else_=text_literal(Outcome.REQUEUED))
    expired = (
        select(rows.c.queue, rows.c.task, metric.label("metric"), func.count().label("count"))
        .where(rows.c.expired)
        .group_by(rows.c.queue, rows.c.task, rows.c.exhausted)
        .subquery("expiries")
    )
    bucket = literal_column(str(OUTCOME), SmallInteger)
    return _adding(models, expired, expired.c.metric, bucket, expired.c.count).cte("counted")


@cache
def window(models: Models) -> Select[Any]:
    """Counts since the interval ``window`` ago, summed over tasks and shards."""
    table = models.table(models.rollup)
    since = now() - bindparam("window", type_=Interval)
    columns = (table.c.queue, table.c.metric, table.c.bucket)
    total = cast(func.sum(table.c.count), BigInteger).label("count")
    return select(*columns, total).where(table.c.minute >= func.date_trunc("minute", since)).group_by(*columns)


def _adding(
    models: Models, rows: FromClause, metric: ColumnElement[Any], bucket: ColumnElement[Any], count: ColumnElement[Any]
) -> Upsert:
    table = models.table(models.rollup)
    minute = func.date_trunc("minute", now())
    chosen = select(minute, rows.c.queue, rows.c.task, metric, bucket, count)
    adding = upsert(table).from_select(["minute", "queue", "task", "metric", "bucket", "count"], chosen)
    return adding.on_conflict_do_update(
        index_elements=list(table.primary_key), set_={"count": table.c.count + adding.excluded.count}
    )
