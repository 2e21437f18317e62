"""The heartbeat. It never waits: a row that is locked at this moment is being settled or taken, and is skipped."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Double, Select, Text, and_, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import CLAIMED, DUE_STATES, now, seconds

__all__ = ["heartbeat", "unanswered"]


@cache
def heartbeat(models: Models) -> Select[Any]:
    """Extend the leases of the parallel arrays ``ids`` and ``tokens`` to ``leases`` seconds from now.

    The answer holds the pairs of id and token that own nothing any more.
    """
    job = models.table(models.job)
    numbers = ARRAY(BigInteger)
    beat = (
        func.unnest(
            bindparam("ids", type_=numbers),
            bindparam("tokens", type_=numbers),
            bindparam("leases", type_=ARRAY(Double)),
        )
        .table_valued("id", "token", "lease")
        .render_derived(name="beat")
    )
    alive = and_(job.c.id == beat.c.id, job.c.token == beat.c.token, job.c.claimed_at.is_not(None))
    reached = (
        select(job.c.id, beat.c.lease)
        .join_from(beat, job, alive)
        .with_for_update(skip_locked=True, key_share=True, of=job)
        .cte("reached")
        .prefix_with("MATERIALIZED")
    )
    extended = (
        update(job).where(job.c.id == reached.c.id).values(visible_at=now() + seconds(reached.c.lease)).cte("extended")
    )
    lost = select(beat.c.id, beat.c.token).select_from(beat.outerjoin(job, alive)).where(job.c.id.is_(None))
    return lost.add_cte(extended)


@cache
def unanswered(models: Models) -> Select[Any]:
    """Claims in ``for_queue`` that ``worker`` does not know of: those that are in its name, and none of ``ids``.

    Reads all that is claimed or scheduled in this queue; for the time after an outage only.
    """
    job = models.table(models.job)
    queue = job.c.queue == bindparam("for_queue", type_=Text)
    claimed = and_(job.c.status.in_(DUE_STATES), job.c.status == CLAIMED)
    unknown = job.c.id != func.all(bindparam("ids", type_=ARRAY(BigInteger)))
    mine = and_(job.c.claimed_by == bindparam("worker", type_=Text), unknown)
    return select(job.c.id, job.c.token, job.c.claimed_at).where(queue, claimed, mine)
