"""What ``tune`` asks our own tables: counts and spans, never a job's arguments. None of this is on the poll path."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Double,
    Float,
    Interval,
    Select,
    bindparam,
    cast,
    func,
    literal_column,
    or_,
    select,
    tablesample,
)

from sa_jobqueue.models import Models
from sa_jobqueue.statements.literals import CLAIMED, QUEUED, now, text_literal
from sa_jobqueue.statements.rollup import SECONDS
from sa_jobqueue.states import DeathReason
from sa_jobqueue.values import OWN_KEY_PREFIX

__all__ = ["backlog", "busiest", "clock", "counts", "deaths", "key_sample", "seen_settings"]


@cache
def clock(models: Models) -> Select[Any]:
    """The database's time ``at``, and the first minute ``since`` the window's begin in which anything was counted."""
    rollup = models.table(models.rollup)
    first = select(func.min(rollup.c.minute)).where(rollup.c.minute >= _minute(_begin())).scalar_subquery()
    return select(now().label("at"), func.greatest(first, _begin()).label("since"))


@cache
def counts(models: Models) -> Select[Any]:
    """What was counted since the interval ``window`` ago, by queue, task, metric and bucket."""
    rollup = models.table(models.rollup)
    columns = (rollup.c.queue, rollup.c.task, rollup.c.metric, rollup.c.bucket)
    return (
        select(*columns, _total(rollup.c.count).label("count"))
        .where(rollup.c.minute >= _minute(_begin()))
        .group_by(*columns)
    )


@cache
def busiest(models: Models) -> Select[Any]:
    """For each task the most runs that were counted in one minute of the window."""
    rollup = models.table(models.rollup)
    minutes = (
        select(rollup.c.task, _total(rollup.c.count).label("runs"))
        .where(rollup.c.minute >= _minute(_begin()), rollup.c.metric == text_literal(SECONDS))
        .group_by(rollup.c.minute, rollup.c.task)
        .subquery("minutes")
    )
    return select(minutes.c.task, func.max(minutes.c.runs).label("runs")).group_by(minutes.c.task)


@cache
def backlog(models: Models) -> Select[Any]:
    """By queue: jobs that may run, seconds since when, and how many of them were enqueued within the window."""
    job = models.table(models.job)
    runnable = or_(job.c.status == QUEUED, job.c.visible_at <= now())
    oldest = _seconds(now() - func.min(job.c.visible_at))
    fresh = func.count().filter(job.c.enqueued_at >= _begin())
    columns = (
        func.count().label("ready"),
        func.greatest(oldest, literal_column("0")).label("oldest"),
        fresh.label("fresh"),
    )
    return select(job.c.queue, *columns).where(runnable).group_by(job.c.queue)


@cache
def seen_settings(models: Models) -> Select[Any]:
    """By task: what rows give away of its settings.

    A lease that no heartbeat has extended yet, because less than a third of it is over, is the visibility timeout.
    """
    job = models.table(models.job)
    lease, age = _seconds(job.c.visible_at - job.c.claimed_at), _seconds(now() - job.c.claimed_at)
    timeout = func.min(lease).filter(job.c.status == CLAIMED, literal_column("3", Double) * age < lease)
    attempts = func.max(job.c.max_attempts)
    columns = (timeout.label("visibility_timeout"), attempts.label("max_attempts"))
    return select(job.c.task, *columns).group_by(job.c.task)


@cache
def deaths(models: Models) -> Select[Any]:
    """By task: jobs that died within the window, and the retries that had been spent on those that failed."""
    dead = models.table(models.dead_letter)
    failed, expired = (dead.c.reason == text_literal(each) for each in (DeathReason.FAILED, DeathReason.LEASE_EXPIRED))
    spent = func.sum(dead.c.attempt - literal_column("1")).filter(failed)
    columns = (
        func.count().filter(failed).label("failed"),
        cast(func.coalesce(spent, literal_column("0")), BigInteger).label("retries"),
        func.count().filter(expired).label("expired"),
    )
    return select(dead.c.task, *columns).where(dead.c.died_at >= _begin()).group_by(dead.c.task)


@cache
def key_sample(models: Models) -> Select[Any]:
    """Of ``percent`` of the pages of dedup keys: how many keys there are, and how many are no natural ones."""
    sampled = tablesample(models.table(models.dedup_key), func.system(bindparam("percent", type_=Float)))
    own = func.starts_with(sampled.c.key, text_literal(OWN_KEY_PREFIX))
    columns: tuple[Any, ...] = (func.count().label("keys"), func.count().filter(own).label("own"))
    return select(*columns).select_from(sampled)


def _begin() -> ColumnElement[Any]:
    return now() - bindparam("window", type_=Interval)


def _minute(instant: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.date_trunc("minute", instant)


def _seconds(span: ColumnElement[Any]) -> ColumnElement[Any]:
    return cast(func.extract("epoch", span), Double)


def _total(column: ColumnElement[Any]) -> Any:
    return cast(func.sum(column), BigInteger)
