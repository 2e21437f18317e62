"""Handlers that fail, in every way there is: each outcome is recorded, and the slot is free again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from sa_jobqueue import Backoff, RejectJob, SnoozeJob, current_job
from sa_jobqueue.observe import RunEnded, RunStarted
from tests.proofs.app import QUEUE
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from sa_jobqueue.observe import Event
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

_BEYOND_EXCEPTION = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]
_REASON = "no such customer"


def test_a_failure_in_sql_is_recorded_in_a_fresh_transaction_and_follows_the_backoff(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE, backoff=Backoff(base=0.2, jitter=0, cap=1))
    def divide(session: Session) -> None:
        session.execute(text("SELECT 1/0"))

    job = enqueue("divide", max_attempts=3)
    crew.drain()
    (dead,) = observer.dead(job.id)
    assert [entry["error"].splitlines()[0] for entry in dead.errors] == [
        "DataError: (psycopg.errors.DivisionByZero) division by zero"
    ] * 3
    started = [event.job.claimed_at for event in events.of(RunStarted)]
    first, second = (later - earlier for earlier, later in pairwise(started))
    assert first >= timedelta(seconds=0.2)
    assert second >= timedelta(seconds=0.4)


def test_a_failed_handler_has_given_its_connection_back_when_its_failure_is_told(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], engine: Engine
) -> None:
    connections: list[int] = []

    def count(event: Event) -> None:
        if isinstance(event, RunEnded):
            connections.append(engine.pool.checkedout())

    @tasks.task(queue=QUEUE)
    def divide(session: Session) -> None:
        session.execute(text("SELECT 1/0"))

    enqueue("divide", max_attempts=1)
    crew.drain(subscribers=[count])
    assert connections == [0]


@pytest.mark.parametrize("error", _BEYOND_EXCEPTION)
@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_an_exception_outside_of_exception_is_a_failure_like_any_other(
    kind: str,
    error: type[BaseException],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    @tasks.task(queue=QUEUE)
    def function(_session: Session) -> None:
        raise error

    @tasks.task(queue=QUEUE)
    async def coroutine(_session: AsyncSession) -> None:
        raise error

    job = enqueue(kind, max_attempts=1)
    crew.drain(concurrency=1)
    assert only_error(observer, job).startswith(error.__name__)


class Mute(Exception):
    """An error that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [Mute(), ValueError("a\x00b \ud800"), ValueError("long " * 10_000)],
    ids=["mute", "NUL and surrogate", "long"],
)
def test_an_error_whose_text_cannot_be_stored_is_recorded_all_the_same(
    error: Exception, tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def fail(_session: Session) -> None:
        raise error

    job = enqueue("fail", max_attempts=1)
    crew.drain()
    assert only_error(observer, job).startswith(type(error).__name__)


def test_a_rejected_job_is_a_dead_letter_after_its_first_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def reject(_session: Session) -> None:
        raise RejectJob(_REASON)

    job = enqueue("reject")
    crew.drain()
    assert observer.dead(job.id)[0].reason == "rejected"
    assert only_error(observer, job) == "RejectJob: no such customer"


def test_a_snoozed_job_runs_again_without_having_spent_an_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def snooze(_session: Session) -> None:
        if current_job().token < 3:
            raise SnoozeJob(0.01)

    enqueue("snooze", max_attempts=1)
    crew.drain()
    assert events.outcomes() == ["snoozed", "snoozed", "done"]
    assert set(events.attempts()) == {1}


@pytest.mark.parametrize("delay", [-1, "soon"])
def test_a_snooze_for_no_real_delay_is_a_failure_and_frees_the_slot(
    delay: Any, tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def snooze(_session: Session) -> None:
        raise SnoozeJob(delay)

    job = enqueue("snooze", max_attempts=1)
    crew.drain(concurrency=1)
    assert only_error(observer, job).startswith("SnoozeJob")


def test_arguments_that_no_longer_fit_the_handler_end_as_undecodable(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def changed(_session: Session, *, new_name: str) -> None: ...

    job = enqueue("changed", {"old_name": "x"}, max_attempts=1)
    crew.drain()
    assert observer.dead(job.id)[0].reason == "undecodable"
    assert "new_name" in only_error(observer, job)
