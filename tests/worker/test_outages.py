"""The database goes away and comes back: the worker stays, spends no attempt, and does not flood the log."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import JobSession, NewJob, metadata
from sa_jobqueue.embedded import embedded_postgres
from sa_jobqueue.observe import (
    HeartbeatFailed,
    Outage,
    Recovered,
    RunStarted,
    RunUnrecorded,
    WorkerStarted,
    log_event,
)
from tests.behaviour.business import Base, Effect
from tests.behaviour.observer import Observer
from tests.database import memory_folder
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from sa_jobqueue import TaskRegistry
    from sa_jobqueue.embedded import EmbeddedServer
    from tests.proofs.crew import Events


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """A server that this module alone may take down."""
    with embedded_postgres(within=memory_folder()) as server:
        yield server


@pytest.fixture
def database_url(server: EmbeddedServer) -> str:
    return server.url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url, pool_size=20)
    for tables in (metadata, Base.metadata):
        tables.drop_all(engine)
        tables.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def go_on(tasks: TaskRegistry) -> Event:
    """What the handlers wait for between their effect and their end."""
    told = Event()

    def hold(session: Session, n: int) -> None:
        session.add(Effect(name=str(n)))
        session.flush()
        told.wait(60)

    tasks.task(queue=QUEUE, visibility_timeout=60)(hold)
    tasks.task(queue=QUEUE, visibility_timeout=0.5, name="hold_briefly")(hold)
    return told


def enqueue_held(engine: Engine, count: int, task: str = "hold") -> None:
    with sessionmaker(engine).begin() as session:
        JobSession(session).enqueue_many([NewJob(task, {"n": n}, QUEUE) for n in range(count)])


def wait_for_effects_in_flight(observer: Observer, count: int) -> None:
    """Wait until so many handlers have written their effect, and hold their transactions open."""
    written = "SELECT count(*) FROM pg_locks WHERE relation = 'effect'::regclass AND mode = 'RowExclusiveLock'"
    wait_until(lambda: observer.scalar(written) == count, timeout=30, what=f"{count} effects in flight")


def test_a_worker_survives_a_crash_of_the_server_under_load_and_spends_no_attempt_on_it(
    crew: Crew, engine: Engine, server: EmbeddedServer, observer: Observer, events: Events, go_on: Event
) -> None:
    enqueue_held(engine, 20)
    crew.start(until_empty=True, concurrency=4)
    wait_for_effects_in_flight(observer, 4)
    server.stop("immediate")
    events.wait_for(Outage)
    go_on.set()
    server.start()
    crew.wait(60)

    assert sorted(map(int, observer.effects())) == list(range(20))
    assert {event.job.attempt for event in events.of(RunStarted)} == {1}
    assert sorted(events.outcomes()) == ["done"] * 20 + ["snoozed"] * 4
    assert len(events.of(Recovered)) == 1


def test_a_worker_that_is_started_before_its_database_waits_for_it(
    crew: Crew, engine: Engine, server: EmbeddedServer, observer: Observer, events: Events, go_on: Event
) -> None:
    enqueue_held(engine, 3)
    go_on.set()
    server.stop("immediate")
    crew.start(until_empty=True)
    events.wait_for(Outage)
    assert events.of(WorkerStarted) == []
    server.start()
    crew.wait(60)

    assert sorted(observer.effects()) == ["0", "1", "2"]
    assert len(events.of(WorkerStarted)) == 1


def test_a_long_outage_fills_no_log(
    crew: Crew,
    engine: Engine,
    server: EmbeddedServer,
    observer: Observer,
    events: Events,
    go_on: Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sa_jobqueue")
    attempts: list[object] = []
    enqueue_held(engine, 4)
    crew.start(until_empty=True, concurrency=4, subscribers=[events, log_event])
    wait_for_effects_in_flight(observer, 4)
    with _counting_connects(attempts):
        server.stop("immediate")
        go_on.set()
        wait_until(lambda: len(attempts) > 30, timeout=60, what="many tries to connect")
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    server.start()
    crew.wait(60)

    assert events.outcomes().count("done") == 4
    assert len(logged) <= 2, [record.getMessage() for record in logged]
    assert len(events.of(Outage)) == 1
    assert len(events.of(HeartbeatFailed)) <= 1


def test_runs_that_cannot_be_recorded_before_their_lease_is_over_run_again_and_are_no_outages_of_their_own(
    crew: Crew, engine: Engine, server: EmbeddedServer, observer: Observer, events: Events, go_on: Event
) -> None:
    enqueue_held(engine, 4, task="hold_briefly")
    crew.start(until_empty=True, concurrency=4)
    wait_for_effects_in_flight(observer, 4)
    server.stop("immediate")
    events.wait_for(Outage)
    go_on.set()
    events.wait_for(RunUnrecorded, count=4)
    server.start()
    crew.wait(60)

    assert sorted(map(int, observer.effects())) == list(range(4))
    assert (len(events.of(Outage)), len(events.of(Recovered))) == (1, 1)


@contextmanager
def _counting_connects(attempts: list[object]) -> Iterator[None]:
    """Count the tries of all engines to connect."""

    def count(*_details: object) -> None:
        attempts.append(None)

    event.listen(Engine, "do_connect", count)
    try:
        yield
    finally:
        event.remove(Engine, "do_connect", count)
