"""factory-boy factories for rows that satisfy every constraint, in each state that a job can be in.

A factory class belongs to no session. :func:`factories_for` makes subclasses bound to one session, which end with the
test; ``JobFactory.build()`` needs none. Bound factories flush, so that ids are there, and never commit.
"""
# ruff: noqa: D106 - Meta and Params are factory-boy's syntax

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sa_jobqueue.models import DeadLetter, DedupKey, Job, JobLog, Models
from sa_jobqueue.states import DeathReason, Outcome, State

try:
    from factory.alchemy import SQLAlchemyModelFactory
    from factory.declarations import LazyAttribute, LazyFunction, Trait
except ImportError as error:
    msg = "the factories need factory-boy: pip install 'sa-jobqueue[testing]'"
    raise ImportError(msg) from error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

__all__ = ["DeadLetterFactory", "DedupKeyFactory", "Factories", "JobFactory", "JobLogFactory", "factories_for"]


# factory-boy has type hints, but not on its declarations.
def _each(make: Callable[[], Any]) -> Any:
    """A value that is made anew for each row."""
    return LazyFunction(make)  # type: ignore[no-untyped-call]  # factory-boy has no types there


def _of(derive: Callable[[Any], Any]) -> Any:
    """A value that is derived from the row's others."""
    return LazyAttribute(derive)  # type: ignore[no-untyped-call]  # factory-boy has no types there


def _hours(count: int) -> Any:
    """A time whole hours from ``now``, so that a server whose clock differs a little sees the row in the same state."""
    return _of(lambda row: row.now + timedelta(hours=count))


def _trait(**values: Any) -> Any:
    return Trait(**values)  # type: ignore[no-untyped-call]  # factory-boy has no types there


def _far_id() -> int:
    """An id that the numbering of the jobs table does not reach, so that a redrive finds it free."""
    return 2**40 + secrets.randbelow(2**40)


def _error(row: Any, attempt: int) -> dict[str, Any]:
    return {"attempt": attempt, "at": row.died_at.isoformat(), "error": "RuntimeError: it failed", "worker": "factory"}


class _Row(SQLAlchemyModelFactory):
    class Meta:
        abstract = True
        sqlalchemy_session_persistence = "flush"

    class Params:
        now = _each(lambda: datetime.now(UTC))


class JobFactory(_Row):
    """A live job: queued, or ``scheduled=True``, ``claimed=True``, ``expired=True`` (its worker was lost).

    ``now`` (an aware datetime) is the instant that the row's times are reckoned from.
    """

    class Meta:
        model = Job

    class Params:
        queued = _trait(status=State.QUEUED.value)
        scheduled = _trait(status=State.SCHEDULED.value, visible_at=_hours(1))
        claimed = _trait(
            status=State.CLAIMED.value,
            attempt=1,
            token=1,
            claimed_at=_hours(0),
            claimed_by="factory",
            visible_at=_hours(1),
        )
        expired = _trait(
            status=State.CLAIMED.value,
            attempt=1,
            token=1,
            enqueued_at=_hours(-3),
            claimed_at=_hours(-2),
            claimed_by="factory",
            visible_at=_hours(-1),
        )

    queue = "default"
    task = "task"
    args = _each(dict)
    headers = _each(dict)
    status = State.QUEUED.value
    priority = 0
    attempt = 0
    max_attempts = 5
    token = 0
    enqueued_at = _hours(0)
    visible_at = _hours(0)
    claimed_at = None
    claimed_by = None
    dedup_key = None
    unique_key = None
    errors = _each(list)


class DedupKeyFactory(_Row):
    """An effect that exists: a job of task ``scope`` with this ``key`` is suppressed as a duplicate."""

    class Meta:
        model = DedupKey

    scope = "task"
    # Not a sequence: those start again in every process, and committed rows of two processes would collide.
    key = _each(lambda: uuid.uuid4().hex)
    job_id = None
    created_at = _hours(0)


class DeadLetterFactory(_Row):
    """A job that was given up: after its last attempt, or ``reason=…``; ``redriven=True`` if it was brought back."""

    class Meta:
        model = DeadLetter

    class Params:
        redriven = _trait(redriven_at=_hours(0))

    job_id = _each(_far_id)
    queue = "default"
    task = "task"
    args = _each(dict)
    headers = _each(dict)
    priority = 0
    attempt = 5
    max_attempts = 5
    token = _of(lambda row: row.attempt)
    enqueued_at = _hours(-2)
    dedup_key = None
    unique_key = None
    errors = _of(lambda row: [_error(row, attempt) for attempt in range(1, row.attempt + 1)])
    reason = DeathReason.FAILED.value
    died_at = _hours(-1)
    redriven_at = None


class JobLogFactory(_Row):
    """The record of a run that is over: done, or ``outcome=…``."""

    class Meta:
        model = JobLog

    job_id = _each(_far_id)
    queue = "default"
    task = "task"
    attempt = 1
    worker = "factory"
    outcome = Outcome.DONE.value
    enqueued_at = _hours(-2)
    claimed_at = _hours(-1)
    finished_at = _hours(0)


@dataclass(frozen=True, slots=True)
class Factories:
    """The four factories, bound to one session."""

    job: type[JobFactory]
    dedup_key: type[DedupKeyFactory]
    dead_letter: type[DeadLetterFactory]
    job_log: type[JobLogFactory]


def factories_for(session: Session, *, models: Models | None = None) -> Factories:
    """Factories whose rows go into ``session``; with ``models`` they make rows of your own mapped classes."""
    mapped = models or Models()
    return Factories(
        job=_bound(JobFactory, session, mapped.job),
        dedup_key=_bound(DedupKeyFactory, session, mapped.dedup_key),
        dead_letter=_bound(DeadLetterFactory, session, mapped.dead_letter),
        job_log=_bound(JobLogFactory, session, mapped.job_log),
    )


def _bound(factory: type[Any], session: Session, mapped: type[Any]) -> type[Any]:
    class Bound(factory):  # type: ignore[misc]  # the base is given at run time
        class Meta:
            model = mapped
            sqlalchemy_session = session

    return Bound
