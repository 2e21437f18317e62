"""The claim: pick and lock n rows in one materialised CTE, then change exactly those.

``UPDATE … WHERE id IN (SELECT … LIMIT n FOR UPDATE SKIP LOCKED)`` is not the same: under some plans the sub-select
runs once for each outer row, and every run locks n more.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    CompoundSelect,
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
    null,
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

Answer = TypeVar("Answer", Select[Any], CompoundSelect[Any])

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
        select(job.c.id, job.c.visible_at, false().label("expired"))
        .where(job.c.queue == bindparam("for_queue", type_=Text), job.c.status == QUEUED)
        .where(job.c.task == func.any(bindparam("tasks", type_=ARRAY(Text))), *([_behind(job)] if behind else []))
        .order_by(job.c.priority, job.c.visible_at, job.c.id)
        .limit(limit_to())
        .with_for_update(skip_locked=True, key_share=True, of=job)
        .cte("picked")
        .prefix_with("MATERIALIZED")
    )
    lease = select(lanes.c.lease).where(lanes.c.task == job.c.task).scalar_subquery()
    taken = _taken(job, _unfolded(picked), visible_at=now() + seconds(lease))
    return _in_order(_answer(models, taken))


@cache
def claim_due(models: Models) -> CompoundSelect[Any]:
    """For a service without a worker: queued, due and expired rows alike, the highest priority first.

    An expired row whose attempts are used up is buried instead; the answer then has a row without values, so that
    the caller can ask again. Parameters: ``for_queue``, ``worker``, ``limit``, ``lease`` (interval).
    """
    job = models.table(models.job)
    picked = _pick_runnable(job)
    live = _unfolded(picked, ~picked.c.exhausted)
    history = case((live.c.expired, with_error(job, EXPIRED)), else_=job.c.errors)
    taken = _taken(job, live, visible_at=after("lease"), errors=history)
    graves = grave(models, _exhausted(job, picked), DeathReason.LEASE_EXPIRED, error=EXPIRED)
    answer = _answer(models, taken)
    buried = select(*(null() for _ in answer.selected_columns)).where(picked.c.exhausted)
    rows: CompoundSelect[Any] = union_all(answer, buried)
    return _in_order(rows).add_cte(graves, expiries(models, picked))


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
        select(*held.c, seen.c.visible_at)
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


def _unfolded(picked: CTE, *which: ColumnElement[bool]) -> Any:
    """The picked rows by way of arrays, of which the planner expects few elements: it joins them by index.

    Of the rows as they are it expects what it happens to know of the queue: many, and it reads the whole table; or one,
    and it compares each with each.
    """
    columns = {"id": picked.c.id, "runnable_since": picked.c.visible_at, "expired": picked.c.expired}
    arrays = (func.array(select(column).where(*which).scalar_subquery()) for column in columns.values())
    return func.unnest(*arrays).table_valued(*columns).render_derived(name="unfolded")


def _taken(job: Table, rows: Any, **values: ColumnElement[Any]) -> CTE:
    """The rows as they are now, and what is known of them from before."""
    return (
        update(job)
        .where(job.c.id == rows.c.id)
        .values(
            status=CLAIMED,
            attempt=job.c.attempt + 1,
            token=job.c.token + 1,
            claimed_at=now(),
            claimed_by=bindparam("worker", type_=Text),
            **values,
        )
        .returning(*(job.c[name] for name in RETURNED), rows.c.expired, rows.c.runnable_since)
        .cte("taken")
    )


def _exhausted(job: Table, picked: CTE) -> CTE:
    return delete(job).where(job.c.id == picked.c.id, picked.c.exhausted).returning(*job.c).cte("exhausted")


def _answer(models: Models, taken: CTE) -> Select[Any]:
    effect = models.table(models.dedup_key)
    duplicate = exists().where(effect.c.scope == taken.c.task, effect.c.key == taken.c.dedup_key)
    claimed = (taken.c[name] for name in RETURNED)
    return select(*claimed, duplicate.label("duplicate"), taken.c.expired, taken.c.runnable_since)


def _in_order(answer: Answer) -> Answer:
    return answer.order_by("priority", "runnable_since", "id")
