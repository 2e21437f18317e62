"""The server ends sessions of a worker, and goes on itself: no attempt is spent on that."""

from __future__ import annotations

from threading import Barrier, Event
from typing import TYPE_CHECKING

from sqlalchemy import text

from sa_jobqueue.observe import Outage, Recovered, RunEnded, RunStarted, RunUnrecorded
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.locks import ADVISORY_LOCK, LOCK_OF_ALL_JOBS, LOCKS_OF_JOB_ROWS, held

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

END_ALL_OTHERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)

_END_WAITING = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
"""Whoever waits for a lock."""


def test_a_coroutine_whose_connection_the_server_ends_runs_again_and_spends_no_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    ended = Event()

    @tasks.task(queue=QUEUE)
    async def write_twice(session: AsyncSession) -> None:
        session.add(Effect(name="first"))
        await session.flush()
        if not ended.is_set():
            observer.scalar(END_ALL_OTHERS)
            ended.set()
        session.add(Effect(name="second"))

    enqueue("write_twice")
    crew.start()
    events.wait_for(RunEnded, count=2)
    assert events.outcomes() == ["snoozed", "done"]
    assert events.attempts() == [1, 1]
    assert observer.effects() == ["first", "second"]


def test_a_worker_whose_every_connection_is_ended_at_once_goes_on(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    written, go_on = Barrier(5), Event()

    @tasks.task(queue=QUEUE)
    def hold(session: Session, n: int) -> None:
        session.add(Effect(name=str(n)))
        session.flush()
        if not go_on.is_set():
            written.wait(30)
        go_on.wait(30)

    for n in range(10):
        enqueue("hold", {"n": n})
    crew.start(until_empty=True, concurrency=4)
    written.wait(30)
    assert observer.scalar(END_ALL_OTHERS) >= 4
    go_on.set()
    crew.wait(60)

    assert sorted(map(int, observer.effects())) == list(range(10))
    assert set(events.attempts()) == {1}


def test_a_function_whose_connection_the_server_ends_in_the_middle_of_sql_runs_again_and_spends_no_attempt(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def wait_for_lock(session: Session) -> None:
        session.add(Effect(name="once"))
        session.flush()
        session.execute(text(ADVISORY_LOCK))

    enqueue("wait_for_lock")
    with held(engine, ADVISORY_LOCK):
        crew.start()
        wait_until(lambda: observer.scalar(_END_WAITING), what="a handler that waits, and its session to end")
        events.wait_for(RunEnded)
    events.wait_for(RunEnded, count=2)
    assert (events.outcomes(), observer.effects()) == (["snoozed", "done"], ["once"])
    assert events.attempts() == [1, 1]


def test_a_loop_whose_connection_the_server_ends_says_so_once_and_goes_on(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def mark(session: Session) -> None:
        session.add(Effect(name="done"))

    enqueue("mark")
    with held(engine, LOCK_OF_ALL_JOBS):
        crew.start()
        wait_until(lambda: observer.scalar(_END_WAITING), what="a sweep that waits, and its session to end")
        events.wait_for(Outage)
    events.wait_for(Recovered)
    events.wait_for(RunEnded)
    assert (events.outcomes(), observer.effects()) == (["done"], ["done"])
    assert (len(events.of(Outage)), events.attempts()) == (1, [1])


def test_a_record_whose_connection_the_server_ends_is_written_all_the_same_and_once(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE)
    def fail(_session: Session) -> None:
        go_on.wait(30)
        message = "told to fail"
        raise ValueError(message)

    job = enqueue("fail", max_attempts=2)
    crew.start()
    events.wait_for(RunStarted)
    with held(engine, LOCKS_OF_JOB_ROWS):
        go_on.set()
        wait_until(lambda: observer.scalar(_END_WAITING), what="a record that waits, and its session to end")
    events.wait_for(RunEnded)
    row = observer.job(job.id)
    assert (events.outcomes(), row.attempt, len(row.errors)) == (["retried"], 1, 1)
    assert events.of(RunUnrecorded) == []
