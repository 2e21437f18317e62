"""The sweep of one queue: one walk of the due index promotes, re-queues and buries."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Double,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    null,
    select,
    update,
)

from sa_jobqueue.models import Models
from sa_jobqueue.statements.bury import EXPIRED, grave, with_error
from sa_jobqueue.statements.literals import CLAIMED, DUE_STATES, QUEUED, limit_to, now, seconds, text_literal
from sa_jobqueue.statements.rollup import expiries
from sa_jobqueue.states import DeathReason, Outcome

__all__ = ["queues_with_due_rows", "sweep"]

PROMOTED = "promoted"


@cache
def sweep(models: Models) -> Select[Any]:
    """Move up to ``limit`` due rows of ``queue`` on; the answer counts them by kind.

    Leases count as expired up to ``jitter`` seconds late, each by a part of its own, so that jobs whose workers died
    together do not start again together.
    ``visible_at`` stays: it was the due time or the lease expiry, and is now the instant since which the row may run.
    """
    job = models.table(models.job)
    due = _due(job)
    moved = _moved(job, due)
    graves = grave(models, _exhausted(job, due), DeathReason.LEASE_EXPIRED, error=EXPIRED)
    kind = case(
        (due.c.exhausted, text_literal(Outcome.DEAD)),
        (due.c.expired, text_literal(Outcome.REQUEUED)),
        else_=text_literal(PROMOTED),
    ).label("kind")
    counted = select(kind, func.count().label("count")).group_by(kind)
    return counted.add_cte(moved, graves, expiries(models, due))


@cache
def queues_with_due_rows(models: Models) -> Select[Any]:
    """Names of the queues that have scheduled or claimed rows, hopping from one to the next in the due index."""
    job = models.table(models.job)
    due = job.c.status.in_(DUE_STATES)
    first = select(func.min(job.c.queue).label("queue")).where(due)
    hop = first.cte("hop", recursive=True)
    following = select(func.min(job.c.queue)).where(due, job.c.queue > hop.c.queue).scalar_subquery()
    hops = hop.union_all(select(following).where(hop.c.queue.is_not(None)))
    return select(hops.c.queue).where(hops.c.queue.is_not(None))


def _due(job: Table) -> CTE:
    expired = job.c.status == CLAIMED
    return (
        select(
            job.c.id,
            job.c.queue,
            job.c.task,
            expired.label("expired"),
            and_(expired, job.c.attempt >= job.c.max_attempts).label("exhausted"),
        )
        .where(
            job.c.queue == bindparam("for_queue", type_=Text), job.c.status.in_(DUE_STATES), job.c.visible_at <= now()
        )
        .where(job.c.visible_at <= now() - seconds(case((expired, _lateness(job)), else_=literal_column("0", Double))))
        .order_by(job.c.visible_at)
        .limit(limit_to())
        .with_for_update(skip_locked=True, key_share=True)
        .cte("due")
        .prefix_with("MATERIALIZED")
    )


def _lateness(job: Table) -> ColumnElement[Any]:
    """A part of ``jitter`` that stays the same for one claim of one job: random() would be drawn anew by each sweep."""
    part = func.hashint8extended(job.c.id, job.c.token, type_=BigInteger).op("&")(literal_column("1023"))
    return bindparam("jitter", type_=Double) * part / literal_column("1024", Double)


def _moved(job: Table, due: CTE) -> CTE:
    history = case((due.c.expired, with_error(job, EXPIRED)), else_=job.c.errors)
    return (
        update(job)
        .where(job.c.id == due.c.id, ~due.c.exhausted)
        .values(status=QUEUED, claimed_at=null(), claimed_by=null(), errors=history)
        .cte("moved")
    )


def _exhausted(job: Table, due: CTE) -> CTE:
    return delete(job).where(job.c.id == due.c.id, due.c.exhausted).returning(*job.c).cte("exhausted")
