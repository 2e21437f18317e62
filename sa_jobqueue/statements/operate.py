"""What an operator does to jobs: redrive, cancel, look. None of this is on the poll path."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Double,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert

from sa_jobqueue.models import Models
from sa_jobqueue.statements.bury import MOVED, grave
from sa_jobqueue.statements.literals import QUEUED, limit_to, now, text_literal
from sa_jobqueue.states import DeathReason, State

__all__ = ["buried", "cancel", "live", "redrive"]


@cache
def redrive(models: Models) -> Select[Any]:
    """Make live jobs of dead letters, oldest death first.

    ``ids``, ``for_queue`` and ``for_task`` narrow the choice; None stands for any. The dead letter is marked only if
    its job could be inserted; the answer says of each whether it was. A job keeps its id, token, keys and enqueue time;
    its attempts start again.
    """
    dead, job = models.table(models.dead_letter), models.table(models.job)
    chosen = _chosen_dead(models)
    kept = [name for name in MOVED if name != "attempt"]
    rows = select(chosen.c.job_id, *(chosen.c[name] for name in kept), chosen.c.errors, QUEUED, now())
    columns = ["id", *kept, "errors", "status", "visible_at"]
    revived = upsert(job).from_select(columns, rows).on_conflict_do_nothing().returning(job.c.id).cte("revived")
    marked = (
        update(dead)
        .where(dead.c.id == chosen.c.id, chosen.c.job_id == revived.c.id)
        .values(redriven_at=now())
        .cte("marked")
    )
    answer = select(chosen.c.job_id, chosen.c.queue, revived.c.id.is_not(None).label("redriven"))
    answer = answer.select_from(chosen.outerjoin(revived, revived.c.id == chosen.c.job_id))
    return answer.order_by(chosen.c.id).add_cte(marked)


def _chosen_dead(models: Models) -> Any:
    dead = models.table(models.dead_letter)
    ids = bindparam("ids", type_=ARRAY(BigInteger))
    wanted = [dead.c.redriven_at.is_(None), or_(cast(ids, ARRAY(BigInteger)).is_(None), dead.c.job_id == func.any(ids))]
    for name in ("queue", "task"):
        value = cast(bindparam(f"for_{name}", type_=Text), Text)
        wanted.append(or_(value.is_(None), dead.c[name] == value))
    return (
        select(*dead.c)
        .where(and_(*wanted))
        .order_by(dead.c.died_at, dead.c.id)
        .limit(limit_to())
        .with_for_update(skip_locked=True)
        .cte("chosen")
        .prefix_with("MATERIALIZED")
    )


@cache
def cancel(models: Models, *, keep: bool) -> Select[Any]:
    """Take the live job ``for_id`` away from everybody; ``keep`` makes it a dead letter with the text ``error``."""
    job = models.table(models.job)
    gone = delete(job).where(job.c.id == bindparam("for_id", type_=BigInteger)).returning(*job.c).cte("gone")
    answer = select(gone.c.id)
    return answer.add_cte(grave(models, gone, DeathReason.CANCELLED)) if keep else answer


@cache
def live(models: Models) -> Select[Any]:
    """Live jobs by queue and state, and the age in seconds of the oldest one that may run."""
    job = models.table(models.job)
    runnable = or_(job.c.status == QUEUED, job.c.visible_at <= now())
    age = func.extract("epoch", now() - func.min(job.c.visible_at).filter(runnable))
    counts = [func.count().filter(job.c.status == text_literal(state)).label(state) for state in State]
    lag = cast(func.coalesce(func.greatest(age, 0), 0), Double).label("lag_seconds")
    return select(job.c.queue, *counts, lag).group_by(job.c.queue)


@cache
def buried(models: Models) -> Select[Any]:
    """Open dead letters by queue."""
    dead = models.table(models.dead_letter)
    return select(dead.c.queue, func.count().label("dead")).where(dead.c.redriven_at.is_(None)).group_by(dead.c.queue)
