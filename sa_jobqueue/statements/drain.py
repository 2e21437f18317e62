"""Whether a drain has anything to wait for."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Select, Text, bindparam, exists, func, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import CLAIMED, DUE_STATES, QUEUED, now

__all__ = ["outstanding"]


@cache
def outstanding(models: Models) -> Select[Any]:
    """True while ``for_queues`` hold a job of ``tasks`` that may run or is claimed, or one of ``ids`` is alive."""
    job = models.table(models.job)
    ours = [
        job.c.queue == func.any(bindparam("for_queues", type_=ARRAY(Text))),
        job.c.task == func.any(bindparam("tasks", type_=ARRAY(Text))),
    ]
    queued = exists().where(*ours, job.c.status == QUEUED)
    busy = or_(job.c.status == CLAIMED, job.c.visible_at <= now())
    due = exists().where(*ours, job.c.status.in_(DUE_STATES), busy)
    retried = exists().where(job.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger))))
    return select(or_(queued, due, retried))
