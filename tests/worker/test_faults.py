"""Faults at one exact moment of the worker's own work: its connection ends there, or an answer comes late."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.util import await_only

from sa_jobqueue.observe import LeaseWasLost, Outage, RunEnded, RunStarted
from sa_jobqueue.worker.control import Control
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import ClaimedJob, EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

LEASE = 1.5


def _hang_up(control: Control) -> None:
    """A real error of a connection that the server ends."""
    with control.engine.begin() as connection:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


@contextmanager
def _own_engine(engine: Engine) -> Iterator[AsyncEngine]:
    own = create_async_engine(engine.url, pool_size=1, max_overflow=0)
    yield own
    own.sync_engine.dispose(close=False)


def test_what_was_claimed_from_one_queue_runs_though_the_claim_of_the_next_one_fails(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, found = Control.claim, []

    def claim(control: Control, *wanted: Any) -> list[ClaimedJob]:
        if found and not events.of(Outage):
            _hang_up(control)
        jobs = real(control, *wanted)
        found.extend(jobs)
        return jobs

    tasks.task(name="mark")(lambda _session: None)
    for queue in ("a", "b"):
        enqueue("mark", queue=queue)
    monkeypatch.setattr(Control, "claim", claim)
    crew.start(queues=["a", "b"])
    events.wait_for(RunEnded, count=2)
    assert len(events.of(Outage)) == 1
    claims = [(event.job.attempt, event.job.token) for event in events.of(RunStarted)]
    assert claims == [(1, 1), (1, 1)]  # a second token would say that the job was given back and claimed again


def test_a_handler_is_given_up_though_the_keepers_connection_ends_when_it_would_terminate_it(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    never: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Control.end_backend

    def end_backend(control: Control, pid: int, *, terminate: bool) -> None:
        if terminate:
            _hang_up(control)
        real(control, pid, terminate=terminate)

    @tasks.task(queue=QUEUE, time_limit=0.3)
    def stuck(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        never.wait(60)

    monkeypatch.setattr(Control, "end_backend", end_backend)
    enqueue("stuck", max_attempts=1)
    crew.start(concurrency=1, grace=0)
    events.wait_for(RunEnded)
    never.set()
    assert (events.outcomes(), observer.effects()) == (["dead"], [])


def test_a_worker_returns_when_the_last_beat_of_its_keeper_is_over(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, returned, beating, came_back_early = Control.heartbeat, threading.Event(), threading.Event(), []

    def heartbeat(control: Control, leases: Any) -> list[ClaimedJob]:
        beating.set()
        keeper: Any = threading.current_thread()
        keeper._closing.wait(30)  # noqa: SLF001 - the moment at which the worker waits for it
        came_back_early.append(returned.wait(0.5))
        return real(control, leases)

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def until_the_beat(_session: Session) -> None:
        beating.wait(30)

    monkeypatch.setattr(Control, "heartbeat", heartbeat)
    enqueue("until_the_beat")
    crew.drain()
    returned.set()
    assert came_back_early == [False]


def test_a_beat_between_a_coroutines_commit_and_its_answer_takes_it_for_no_loss(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beat, begun = Control.heartbeat, []

    def heartbeat(control: Control, leases: Any) -> list[ClaimedJob]:
        begun.append(leases)
        return beat(control, leases)

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    async def effect(session: AsyncSession) -> None:
        session.add(Effect(name="only"))

    with _own_engine(engine) as own:
        real = own.sync_engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            real(connection)
            enough = len(begun) + 2  # the keeper is through with the first one when it begins the second
            await_only(asyncio.to_thread(wait_until, lambda: len(begun) >= enough, what="two heartbeats"))

        own.sync_engine.dialect.do_commit = do_commit  # type: ignore[method-assign]  # of this one
        monkeypatch.setattr(Control, "heartbeat", heartbeat)
        enqueue("effect")
        crew.drain(async_sessionmaker=async_sessionmaker(own), concurrency=1)
    assert (events.outcomes(), observer.effects(), events.of(LeaseWasLost)) == (["done"], ["only"], [])
