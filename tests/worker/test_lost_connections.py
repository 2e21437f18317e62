"""The server ends sessions of a worker, and goes on itself: no attempt is spent on that."""

from __future__ import annotations

from threading import Barrier, Event
from typing import TYPE_CHECKING

from sa_jobqueue.observe import RunEnded, RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

_END_ALL_OTHERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def test_a_coroutine_whose_connection_the_server_ends_runs_again_and_spends_no_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    ended = Event()

    @tasks.task(queue=QUEUE)
    async def write_twice(session: AsyncSession) -> None:
        session.add(Effect(name="first"))
        await session.flush()
        if not ended.is_set():
            observer.scalar(_END_ALL_OTHERS)
            ended.set()
        session.add(Effect(name="second"))

    enqueue("write_twice")
    crew.start()
    events.wait_for(RunEnded, count=2)
    assert events.outcomes() == ["snoozed", "done"]
    assert [event.job.attempt for event in events.of(RunStarted)] == [1, 1]
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
    assert observer.scalar(_END_ALL_OTHERS) >= 4
    go_on.set()
    crew.wait(60)

    assert sorted(map(int, observer.effects())) == list(range(10))
    assert {event.job.attempt for event in events.of(RunStarted)} == {1}
