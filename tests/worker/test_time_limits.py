"""A run over its time limit, or without its lease, is ended from outside wherever it is stuck, and its slot filled."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from sa_jobqueue import JobSession
from sa_jobqueue.observe import LeaseWasLost, RunEnded, RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.dead import only_error
from tests.worker.locks import ADVISORY_LOCK, held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

LIMIT, LEASE = 0.3, 0.6


@pytest.fixture
def locked(engine: Engine) -> Iterator[None]:
    """Somebody else holds a lock for as long as the test lasts."""
    with held(engine, ADVISORY_LOCK):
        yield


@pytest.fixture
def stuck(tasks: TaskRegistry, never: Event) -> None:
    _declare_stuck(tasks, never, time_limit=LIMIT)


@pytest.fixture
def stuck_for_ever(tasks: TaskRegistry, never: Event) -> None:
    _declare_stuck(tasks, never, visibility_timeout=LEASE)


def _declare_stuck(tasks: TaskRegistry, never: Event, **options: float) -> None:
    declare: Any = tasks.task(queue=QUEUE, **options)

    @declare
    def in_sql(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        session.execute(text("SELECT pg_sleep(1000)"))

    @declare
    def in_a_lock_wait(session: Session) -> None:
        session.execute(text(ADVISORY_LOCK))

    @declare
    def in_python(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        never.wait(60)

    @declare
    async def in_sql_of_a_coroutine(session: AsyncSession) -> None:
        session.add(Effect(name="never"))
        await session.flush()
        await session.execute(text("SELECT pg_sleep(1000)"))

    @declare
    async def in_a_coroutine(session: AsyncSession) -> None:
        session.add(Effect(name="never"))
        await session.flush()
        await asyncio.Event().wait()

    @declare
    async def in_a_coroutine_that_will_not_be_cancelled(session: AsyncSession) -> None:
        session.add(Effect(name="never"))
        await session.flush()
        while not never.is_set():
            try:
                await asyncio.to_thread(never.wait, 60)
            except asyncio.CancelledError:
                continue

    @tasks.task(queue=QUEUE)
    def next_one(session: Session) -> None:
        session.add(Effect(name="next"))


_STUCK = [
    "in_sql",
    "in_a_lock_wait",
    "in_python",
    "in_sql_of_a_coroutine",
    "in_a_coroutine",
    "in_a_coroutine_that_will_not_be_cancelled",
]


@pytest.mark.usefixtures("stuck", "locked")
@pytest.mark.parametrize("where", _STUCK)
def test_a_run_that_is_stuck_is_ended_recorded_and_its_only_slot_filled_again(
    where: str, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events, never: Event
) -> None:
    job = enqueue(where, max_attempts=1)
    enqueue("next_one")
    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=2)
    never.set()

    assert events.outcomes() == ["dead", "done"]
    assert only_error(observer, job).startswith("TimeLimitExceeded")
    assert observer.effects() == ["next"]


@pytest.mark.usefixtures("stuck_for_ever", "locked")
@pytest.mark.parametrize("where", _STUCK)
def test_a_run_that_is_stuck_and_has_lost_its_lease_is_ended_and_its_only_slot_filled_again(
    where: str,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
    events: Events,
    never: Event,
) -> None:
    job = enqueue(where)
    enqueue("next_one")
    crew.start(concurrency=1)
    events.wait_for(RunStarted)
    with sessionmaker.begin() as operator:
        assert JobSession(operator).cancel(job.id)
    (lost,) = events.wait_for(LeaseWasLost)
    events.wait_for(RunEnded)
    never.set()

    assert (lost.job.id, events.outcomes(), observer.effects()) == (job.id, ["done"], ["next"])


@pytest.mark.usefixtures("stuck", "locked")
def test_a_run_that_was_given_up_holds_no_locks_while_it_hangs_in_python(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue("in_python", max_attempts=1)
    crew.start(concurrency=1)
    events.wait_for(RunEnded)
    held = "SELECT count(*) FROM pg_locks WHERE relation = 'effect'::regclass AND mode = 'RowExclusiveLock'"
    assert observer.scalar(held) == 0


def test_a_coroutine_that_waits_behind_a_blocked_loop_is_not_over_its_time_limit(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    claimed_long_ago = "SELECT min(statement_timestamp() - claimed_at) > interval '2 seconds' FROM jobqueue_job"

    @tasks.task(queue=QUEUE)
    async def block(_session: AsyncSession) -> None:
        wait_until(lambda: observer.scalar(claimed_long_ago), what="the limit, and the keeper's patience, to pass")

    @tasks.task(queue=QUEUE, time_limit=LIMIT)
    async def brief(_session: AsyncSession) -> None: ...

    enqueue("block")
    enqueue("brief")
    crew.drain(concurrency=2)
    assert events.outcomes() == ["done", "done"]
