"""The worker's look at its queues: which of them may have work, in one statement however many they are."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Double, Select, Text, bindparam, cast, exists, func, select
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
    ready = exists().where(job.c.queue == asked.c.queue, job.c.status == QUEUED)
    waits = job.c.queue == asked.c.queue, job.c.status.in_(DUE_STATES)
    first = select(func.min(job.c.visible_at)).where(*waits).scalar_subquery()
    due_in = cast(func.extract("epoch", first - now()), Double)
    return select(asked.c.queue, ready.label("ready"), due_in.label("due_in"))
