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
    Integer,
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
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert

from sa_jobqueue.models import Models, Timestamp
from sa_jobqueue.statements.bury import grave, with_error
from sa_jobqueue.statements.literals import QUEUED, SCHEDULED, after, now, text_literal
from sa_jobqueue.states import DeathReason, Outcome
from sa_jobqueue.values import OWN_KEY_PREFIX

__all__ = [
    "DUPLICATE",
    "LOST",
    "ack",
    "ack_many",
    "ack_or_error",
    "bury",
    "effect_key",
    "once",
    "release",
    "release_many",
    "retry",
    "snooze",
    "suppress",
    "written",
]

LOST, DUPLICATE = "sa_jobqueue: lease lost", "sa_jobqueue: duplicate effect"
"""Why the server refuses an ack by an error."""

_ACKED = ("id", "task", "dedup_key")
_LOGGED = ("queue", "task", "attempt", "enqueued_at", "claimed_at", "claimed_by")


@cache
def ack(models: Models, *, natural_keys_only: bool = False, log: bool = False) -> Select[Any]:
    """Delete the job, write its dedup row (and log row); no row in the answer means that the lease is lost.

    ``holder`` is the job that wrote the dedup row: this one, now or by ``once``, or another before.
    """
    return _acked(models, owned(models.table(models.job)), natural_keys_only=natural_keys_only, log=log)


@cache
def ack_many(models: Models, *, natural_keys_only: bool = False, log: bool = False) -> Select[Any]:
    """:func:`ack` of the parallel arrays ``ids`` and ``tokens``; what has no row in the answer is lost.

    Keys are written in order, so that two batches with the same keys do not wait for each other in a circle.
    """
    given = _given(ids=BigInteger, tokens=BigInteger)
    mine = _owned_together(models.table(models.job), given)
    return _acked(models, mine, natural_keys_only=natural_keys_only, log=log, several=True)


@cache
def ack_or_error(models: Models, *, natural_keys_only: bool = False, log: bool = False) -> Select[Any]:
    """:func:`ack` whose refusal is an error of the statement, so that a COMMIT in the same message is not reached.

    The error is that :data:`LOST` or :data:`DUPLICATE` is not an integer. Only where no dedup row was written the
    holder of the key is asked for: the job itself, if it has called ``once``.
    """
    mine = owned(models.table(models.job))
    done, written = _done(models, mine, natural_keys_only=natural_keys_only, log=log)
    accepted = [exists(select(written.c.job_id)), select(done.c.id).scalar_subquery() == _holder(models, done)]
    if natural_keys_only:
        accepted.append(exists().where(done.c.dedup_key.is_(None)))
    lost = (~exists(select(done.c.id)), text_literal(LOST))
    refused = case(*((each, text_literal("0")) for each in accepted), lost, else_=text_literal(DUPLICATE))
    return _logged(models, select(cast(refused, Integer).label("refused")), done, Outcome.DONE, log=log)


def _acked(
    models: Models, owned: ColumnElement[bool], *, natural_keys_only: bool, log: bool, several: bool = False
) -> Select[Any]:
    done, written = _done(models, owned, natural_keys_only=natural_keys_only, log=log, several=several)
    fresh = done.c.id.in_(select(written.c.job_id))
    answer = select(done.c.id, case((fresh, done.c.id), else_=_holder(models, done)).label("holder"))
    return _logged(models, answer, done, Outcome.DONE, log=log)


def _done(
    models: Models, owned: ColumnElement[bool], *, natural_keys_only: bool, log: bool, several: bool = False
) -> tuple[CTE, CTE]:
    """The jobs that are deleted, and the dedup rows that are written for them, ``several`` in the order of keys."""
    done = _removed(models, owned, *_ACKED, *(_LOGGED if log else ()))
    effects = models.table(models.dedup_key)
    key = effect_key(done)
    wanted = select(done.c.task, key, done.c.id)
    if natural_keys_only:
        wanted = wanted.where(done.c.dedup_key.is_not(None))
    if several:
        wanted = wanted.order_by(done.c.task, key)
    written = (
        upsert(effects)
        .from_select(["scope", "key", "job_id"], wanted)
        .on_conflict_do_nothing()
        .returning(effects.c.job_id)
        .cte("written")
    )
    return done, written


def _holder(models: Models, done: CTE) -> Any:
    """The job that has written the dedup row of a job in ``done``."""
    effects = models.table(models.dedup_key)
    of_job = effects.c.scope == done.c.task, effects.c.key == effect_key(done)
    return select(effects.c.job_id).where(*of_job).scalar_subquery()


@cache
def suppress(models: Models, *, log: bool = False) -> Select[Any]:
    """Delete a job whose effect exists already; if it does not (``exists`` false), the job is left alone."""
    job, effects = models.table(models.job), models.table(models.dedup_key)
    known = exists().where(effects.c.scope == job.c.task, effects.c.key == effect_key(job)).label("exists")
    before = _locked(job, owned(job), known)
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
    values = {"status": SCHEDULED, "visible_at": after("delay"), "errors": with_error(job)}
    return _let_go(models, _locked(job, owned(job)), values, Outcome.RETRIED, log=log)


@cache
def snooze(models: Models, *, log: bool = False) -> Select[Any]:
    """Schedule the job again after the interval ``delay``; the attempt is given back."""
    job = models.table(models.job)
    values = {"status": SCHEDULED, "visible_at": after("delay"), "attempt": _attempt_back(job)}
    return _let_go(models, _locked(job, owned(job)), values, Outcome.SNOOZED, log=log)


@cache
def release(models: Models, *, log: bool = False) -> Select[Any]:
    """Queue the job again, runnable ``since`` it was before its claim, so that it stays ahead of what came later."""
    job = models.table(models.job)
    return _released(models, _locked(job, owned(job), bindparam("since", type_=Timestamp).label("since")), log=log)


@cache
def release_many(models: Models, *, log: bool = False) -> Select[Any]:
    """:func:`release` of the parallel arrays ``ids``, ``tokens`` and ``sinces``."""
    job = models.table(models.job)
    given = _given(ids=BigInteger, tokens=BigInteger, sinces=Timestamp)
    return _released(models, _locked(job, _owned_together(job, given), given.c.since), log=log)


def _released(models: Models, before: CTE, *, log: bool) -> Select[Any]:
    since = func.coalesce(before.c.since, before.c.claimed_at)
    values = {"status": QUEUED, "visible_at": since, "attempt": _attempt_back(models.table(models.job))}
    return _let_go(models, before, values, Outcome.RELEASED, log=log)


@cache
def bury(models: Models, reason: DeathReason, *, log: bool = False) -> Select[Any]:
    """Move the job to the dead letters with the text ``error``."""
    job = models.table(models.job)
    gone = _removed(models, owned(job), *(column.name for column in job.c))
    graves = grave(models, gone, reason)
    return _logged(models, select(gone.c.id), gone, Outcome.DEAD, log=log).add_cte(graves)


def owned(job: Table) -> ColumnElement[bool]:
    """The fence: this job, under this token, while it is claimed."""
    return and_(
        job.c.id == bindparam("for_id", type_=BigInteger),
        job.c.token == bindparam("for_token", type_=BigInteger),
        job.c.claimed_at.is_not(None),
    )


def _given(**arrays: Any) -> Any:
    """Parallel arrays as rows; the columns are named in the singular."""
    parameters = (bindparam(name, type_=ARRAY(kind)) for name, kind in arrays.items())
    rows = func.unnest(*parameters).table_valued(*(name.removesuffix("s") for name in arrays))
    return rows.render_derived(name="given")


def _owned_together(job: Table, given: Any) -> ColumnElement[bool]:
    """:func:`owned` for the pairs of id and token in ``given``."""
    return and_(job.c.id == given.c.id, job.c.token == given.c.token, job.c.claimed_at.is_not(None))


def _removed(models: Models, owned: ColumnElement[bool], *wanted: str) -> CTE:
    job = models.table(models.job)
    return delete(job).where(owned).returning(*(job.c[name] for name in dict.fromkeys(wanted))).cte("gone")


def _let_go(models: Models, before: CTE, values: dict[str, Any], outcome: Outcome, *, log: bool) -> Select[Any]:
    """Change owned rows and drop their claims; the log keeps what the claims were."""
    job = models.table(models.job)
    changed = (
        update(job)
        .where(job.c.id == before.c.id)
        .values(claimed_at=null(), claimed_by=null(), **values)
        .returning(job.c.id, job.c.visible_at)
        .cte("changed")
    )
    answer = select(changed.c.id, changed.c.visible_at)
    return _logged(models, answer, before, outcome, log=log)


def _locked(job: Table, owned: ColumnElement[bool], *more: ColumnElement[Any]) -> CTE:
    """The owned rows as they are before the statement changes them."""
    rows = select(*job.c, *more).where(owned).with_for_update(key_share=True, of=job)
    return rows.cte("before").prefix_with("MATERIALIZED")


def _attempt_back(job: Table) -> ColumnElement[int]:
    return func.greatest(job.c.attempt - 1, 0)


def effect_key(rows: FromClause, job_id: str = "id") -> ColumnElement[str]:
    """The key of each row's dedup row: its natural one, or the job's own; ``job_id`` names the column of the job."""
    return func.coalesce(rows.c.dedup_key, text_literal(OWN_KEY_PREFIX) + cast(rows.c[job_id], Text))


def _logged(models: Models, answer: Select[Any], runs: FromClause, outcome: Outcome, *, log: bool) -> Select[Any]:
    if not log:
        return answer
    table = models.table(models.job_log)
    shared = [name for name in _LOGGED if name != "claimed_by"]
    rows = select(runs.c.id, runs.c.claimed_by, text_literal(outcome), now(), *(runs.c[name] for name in shared))
    columns = ["job_id", "worker", "outcome", "finished_at", *shared]
    return answer.add_cte(insert(table).from_select(columns, rows).cte("logged"))
