"""How an owned job leaves its claim: every statement is fenced by ``(id, token)`` and says what it changed.

That the row is claimed is asked of ``claimed_at``: asked of ``status`` it would let the planner take the partial index
of claimed rows and walk its dead entries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    insert,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert

from sa_jobqueue.models import Models
from sa_jobqueue.statements.bury import grave, with_error
from sa_jobqueue.statements.literals import QUEUED, SCHEDULED, after, now, text_literal
from sa_jobqueue.states import DeathReason, Outcome
from sa_jobqueue.values import OWN_KEY_PREFIX

__all__ = ["ack", "bury", "once", "release", "retry", "snooze", "suppress", "written"]

_ACKED = ("id", "task", "dedup_key")
_LOGGED = ("queue", "task", "attempt", "enqueued_at", "claimed_at", "claimed_by")


@cache
def ack(models: Models, *, natural_keys_only: bool = False, log: bool = False) -> Select[Any]:
    """Delete the job, write its dedup row (and log row); no row in the answer means that the lease is lost.

    ``holder`` is the job that wrote the dedup row: this one, now or by ``once``, or another before.
    """
    done = _removed(models, *_ACKED, *(_LOGGED if log else ()))
    effects = models.table(models.dedup_key)
    key = _effect_key(done)
    wanted = select(done.c.task, key, done.c.id)
    if natural_keys_only:
        wanted = wanted.where(done.c.dedup_key.is_not(None))
    written = (
        upsert(effects)
        .from_select(["scope", "key", "job_id"], wanted)
        .on_conflict_do_nothing()
        .returning(effects.c.job_id)
        .cte("written")
    )
    holder = select(effects.c.job_id).where(effects.c.scope == done.c.task, effects.c.key == key).scalar_subquery()
    fresh = exists().select_from(written)
    answer = select(done.c.id, case((fresh, done.c.id), else_=holder).label("holder"))
    return _logged(models, answer, done, Outcome.DONE, log=log)


@cache
def suppress(models: Models, *, log: bool = False) -> Select[Any]:
    """Delete a job whose effect exists already; if it does not (``exists`` false), the job is left alone."""
    job, effects = models.table(models.job), models.table(models.dedup_key)
    known = exists().where(effects.c.scope == job.c.task, effects.c.key == _effect_key(job)).label("exists")
    before = _locked(job, known)
    gone = delete(job).where(job.c.id == before.c.id, before.c.exists).returning(*job.c).cte("gone")
    runs = select(*before.c).where(before.c.exists).subquery("runs")
    answer = select(before.c.id, before.c.exists).add_cte(gone)
    return _logged(models, answer, runs, Outcome.DUPLICATE, log=log)


@cache
def once(models: Models) -> Any:
    """Write a dedup row now; no row in the answer means that it exists. Waits for a transaction that is writing it."""
    effects = models.table(models.dedup_key)
    values: dict[str, Any] = {name: bindparam(name) for name in ("scope", "key", "job_id")}
    return upsert(effects).values(values).on_conflict_do_nothing().returning(effects.c.key)


@cache
def written(models: Models) -> Select[Any]:
    """Whether the job ``job_id`` has written the dedup row ``(scope, key)``."""
    effects = models.table(models.dedup_key)
    return select(exists().where(*(effects.c[name] == bindparam(name) for name in ("scope", "key", "job_id"))))


@cache
def retry(models: Models, *, log: bool = False) -> Select[Any]:
    """Schedule the job again after the interval ``delay``, with one more entry in its error history."""
    job = models.table(models.job)
    return _let_go(
        models,
        {"status": SCHEDULED, "visible_at": after("delay"), "errors": with_error(job)},
        Outcome.RETRIED,
        log=log,
    )


@cache
def snooze(models: Models, *, log: bool = False) -> Select[Any]:
    """Schedule the job again after the interval ``delay``; the attempt is given back."""
    job = models.table(models.job)
    return _let_go(
        models,
        {"status": SCHEDULED, "visible_at": after("delay"), "attempt": _attempt_back(job)},
        Outcome.SNOOZED,
        log=log,
    )


@cache
def release(models: Models, *, log: bool = False) -> Select[Any]:
    """Queue the job again, runnable since it was claimed, so that it stays ahead of what came later."""
    job = models.table(models.job)
    return _let_go(
        models,
        {"status": QUEUED, "visible_at": job.c.claimed_at, "attempt": _attempt_back(job)},
        Outcome.RELEASED,
        log=log,
    )


@cache
def bury(models: Models, reason: DeathReason, *, log: bool = False) -> Select[Any]:
    """Move the job to the dead letters with the text ``error``."""
    gone = _removed(models, *(column.name for column in models.table(models.job).c))
    graves = grave(models, gone, reason)
    return _logged(models, select(gone.c.id), gone, Outcome.DEAD, log=log).add_cte(graves)


def owned(job: Table) -> ColumnElement[bool]:
    """The fence: this job, under this token, while it is claimed."""
    return and_(
        job.c.id == bindparam("for_id", type_=BigInteger),
        job.c.token == bindparam("for_token", type_=BigInteger),
        job.c.claimed_at.is_not(None),
    )


def _removed(models: Models, *wanted: str) -> CTE:
    job = models.table(models.job)
    return delete(job).where(owned(job)).returning(*(job.c[name] for name in dict.fromkeys(wanted))).cte("gone")


def _let_go(models: Models, values: dict[str, Any], outcome: Outcome, *, log: bool) -> Select[Any]:
    """Change an owned row and drop the claim; the log keeps what the claim was."""
    job = models.table(models.job)
    before = _locked(job)
    changed = (
        update(job)
        .where(job.c.id == before.c.id)
        .values(claimed_at=null(), claimed_by=null(), **values)
        .returning(job.c.id, job.c.visible_at)
        .cte("changed")
    )
    answer = select(changed.c.id, changed.c.visible_at)
    return _logged(models, answer, before, outcome, log=log)


def _locked(job: Table, *more: ColumnElement[Any]) -> CTE:
    """The owned row as it is before the statement changes it."""
    row = select(*job.c, *more).where(owned(job)).with_for_update(key_share=True)
    return row.cte("before").prefix_with("MATERIALIZED")


def _attempt_back(job: Table) -> ColumnElement[int]:
    return func.greatest(job.c.attempt - 1, 0)


def _effect_key(done: FromClause) -> ColumnElement[str]:
    return func.coalesce(done.c.dedup_key, text_literal(OWN_KEY_PREFIX) + cast(done.c.id, Text))


def _logged(models: Models, answer: Select[Any], runs: FromClause, outcome: Outcome, *, log: bool) -> Select[Any]:
    if not log:
        return answer
    table = models.table(models.job_log)
    shared = [name for name in _LOGGED if name != "claimed_by"]
    rows = select(runs.c.id, runs.c.claimed_by, text_literal(outcome), now(), *(runs.c[name] for name in shared))
    columns = ["job_id", "worker", "outcome", "finished_at", *shared]
    return answer.add_cte(insert(table).from_select(columns, rows).cte("logged"))
