"""The claim: pick and lock n rows in one materialised CTE, then change exactly those.

``UPDATE … WHERE id IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)`` is not the same: under some plans the sub-select
runs once for each outer row, and every run locks n more.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Double,
    Integer,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import Models, Timestamp
from sa_jobqueue.statements.bury import EXPIRED, grave, with_error
from sa_jobqueue.statements.literals import CLAIMED, DUE_STATES, QUEUED, after, limit_to, now, seconds
from sa_jobqueue.statements.rollup import expiries
from sa_jobqueue.states import DeathReason

__all__ = ["RETURNED", "claim_due", "claim_ready"]

RETURNED = (
    "id",
    "queue",
    "task",
    "args",
    "headers",
    "priority",
    "attempt",
    "max_attempts",
    "token",
    "visible_at",
    "enqueued_at",
    "claimed_at",
    "claimed_by",
    "dedup_key",
    "unique_key",
)
"""In the order of the fields of :class:`ClaimedJob`, which is made of such a row by position."""


@cache
def claim_ready(models: Models, *, behind: bool = False) -> Select[Any]:
    """For the worker's loop: queued rows only (its sweep looks after the others), of the tasks that it knows.

    Parameters: ``for_queue``, ``worker``, ``limit``, and the parallel arrays ``tasks`` and ``leases`` (seconds). With
    ``behind``, also the place in claim order where to begin, ``last_priority``, ``last_visible_at`` and ``last_id``:
    what died in front of it since the last vacuum is not walked again.
    """
    job = models.table(models.job)
    lanes = (
        func.unnest(bindparam("tasks", type_=ARRAY(Text)), bindparam("leases", type_=ARRAY(Double)))
        .table_valued("task", "lease")
        .render_derived(name="lanes")
    )
    picked = (
        select(job.c.id, job.c.priority, job.c.visible_at, false().label("expired"), false().label("exhausted"))
        .where(job.c.queue == bindparam("for_queue", type_=Text), job.c.status == QUEUED)
        .where(job.c.task == func.any(bindparam("tasks", type_=ARRAY(Text))), *([_behind(job)] if behind else []))
        .order_by(job.c.priority, job.c.visible_at, job.c.id)
        .limit(limit_to())
        .with_for_update(skip_locked=True, key_share=True, of=job)
        .cte("picked")
        .prefix_with("MATERIALIZED")
    )
    lease = select(lanes.c.lease).where(lanes.c.task == job.c.task).scalar_subquery()
    return _answer(models, picked, _taken(job, picked, visible_at=now() + seconds(lease)))


@cache
def claim_due(models: Models) -> Select[Any]:
    """For a service without a worker: queued, due and expired rows alike, the highest priority first.

    An expired row whose attempts are used up is buried instead; the answer then has a row without values, so that
    the caller can ask again. Parameters: ``for_queue``, ``worker``, ``limit``, ``lease`` (interval).
    """
    job = models.table(models.job)
    picked = _pick_runnable(job)
    history = case((picked.c.expired, with_error(job, EXPIRED)), else_=job.c.errors)
    taken = _taken(job, picked, visible_at=after("lease"), errors=history)
    graves = grave(models, _exhausted(job, picked), DeathReason.LEASE_EXPIRED, error=EXPIRED)
    return _answer(models, picked, taken).add_cte(graves, expiries(models, picked))


def _pick_runnable(job: Table) -> CTE:
    """Lock rows one by one in claim order, until as many are held as are asked for.

    The order is that of the outer side of a nested loop, which is the only join that a LATERAL allows: an ORDER BY
    beside the LIMIT could put a sort between them, and a sort locks every row. The inner side repeats what was seen
    of a row, because a row that changed since is read again when it is locked.
    """
    seen = _runnable(job)
    row = job.alias("held")
    held = (
        select(
            row.c.id,
            row.c.queue,
            row.c.task,
            (row.c.status == CLAIMED).label("expired"),
            and_(row.c.status == CLAIMED, row.c.attempt >= row.c.max_attempts).label("exhausted"),
        )
        .where(row.c.id == seen.c.id, row.c.token == seen.c.token, row.c.visible_at == seen.c.visible_at)
        .with_for_update(skip_locked=True, key_share=True)
        .lateral("picking")
    )
    return (
        select(*held.c, seen.c.priority, seen.c.visible_at)
        .select_from(seen.join(held, true()))
        .limit(limit_to())
        .cte("picked")
        .prefix_with("MATERIALIZED")
    )


def _runnable(job: Table) -> Any:
    """The heads of the two indexes, merged in claim order; read no further than rows are asked for.

    Each LIMIT is far above what one claim takes: it makes the planner walk the index in order rather than sort the
    whole queue, and bounds how many rows that others hold locked are stepped over.
    """
    columns = (job.c.id, job.c.priority, job.c.visible_at, job.c.token)
    of_queue = select(*columns).where(job.c.queue == bindparam("for_queue", type_=Text))
    queued = of_queue.where(job.c.status == QUEUED).order_by(*_claim_order(job)).limit(limit_to("reach"))
    due = of_queue.where(job.c.status.in_(DUE_STATES), job.c.visible_at <= now())
    first_due = due.order_by(job.c.visible_at).limit(limit_to("reach")).subquery("due")
    heads = union_all(queued, select(*first_due.c).order_by(*_claim_order(first_due))).subquery("heads")
    return select(*heads.c).order_by(*_claim_order(heads)).subquery("seen")


def _behind(job: Table) -> ColumnElement[bool]:
    last = (
        bindparam("last_priority", type_=Integer),
        bindparam("last_visible_at", type_=Timestamp),
        bindparam("last_id", type_=BigInteger),
    )
    return tuple_(*_claim_order(job)) > tuple_(*last)


def _claim_order(rows: Any) -> tuple[ColumnElement[Any], ...]:
    return (rows.c.priority, rows.c.visible_at, rows.c.id)


def _taken(job: Table, picked: CTE, **values: ColumnElement[Any]) -> CTE:
    return (
        update(job)
        .where(job.c.id == picked.c.id, ~picked.c.exhausted)
        .values(
            status=CLAIMED,
            attempt=job.c.attempt + 1,
            token=job.c.token + 1,
            claimed_at=now(),
            claimed_by=bindparam("worker", type_=Text),
            **values,
        )
        .returning(*(job.c[name] for name in RETURNED))
        .cte("taken")
    )


def _exhausted(job: Table, picked: CTE) -> CTE:
    return delete(job).where(job.c.id == picked.c.id, picked.c.exhausted).returning(*job.c).cte("exhausted")


def _answer(models: Models, picked: CTE, taken: CTE) -> Select[Any]:
    effect = models.table(models.dedup_key)
    duplicate = exists().where(effect.c.scope == taken.c.task, effect.c.key == taken.c.dedup_key)
    return (
        select(*taken.c, duplicate.label("duplicate"), picked.c.expired, picked.c.visible_at.label("runnable_since"))
        .select_from(picked.outerjoin(taken, taken.c.id == picked.c.id))
        .order_by(picked.c.priority, picked.c.visible_at, picked.c.id)
    )
