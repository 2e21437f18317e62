"""The worker's look at its queues: which of them may have work, in one statement however many they are."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Double, Integer, Select, Text, bindparam, cast, func, literal_column, select
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import DUE_STATES, QUEUED, now

__all__ = ["look"]


@cache
def look(models: Models) -> Select[Any]:
    """For each of ``for_queues``: is a row ``ready``, and in how many seconds is the next one due (None: none waits).

    Reads no more than the first entry of a queue in each of the two indexes.
    """
    job = models.table(models.job)
    asked = func.unnest(bindparam("for_queues", type_=ARRAY(Text))).table_valued("queue").render_derived(name="asked")
    # In claim order, though one row is like another here: the planner must not choose to read the whole table.
    head = select(job.c.id).where(job.c.queue == asked.c.queue, job.c.status == QUEUED)
    head = head.order_by(job.c.priority, job.c.visible_at, job.c.id).limit(literal_column("1", Integer))
    ready = head.scalar_subquery().is_not(None)
    waits = job.c.queue == asked.c.queue, job.c.status.in_(DUE_STATES)
    first = select(func.min(job.c.visible_at)).where(*waits).scalar_subquery()
    due_in = cast(func.extract("epoch", first - now()), Double)
    return select(asked.c.queue, ready.label("ready"), due_in.label("due_in"))
