"""The database goes away and comes back: the worker stays, spends no attempt, and does not flood the log."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import JobSession, NewJob, current_job, metadata
from sa_jobqueue.embedded import embedded_postgres
from sa_jobqueue.observe import (
    HeartbeatFailed,
    Outage,
    Recovered,
    RunEnded,
    RunUnrecorded,
    SweepDone,
    WorkerStarted,
    log_event,
)
from sa_jobqueue.worker.control import Control
from tests.behaviour.business import Base, Effect
from tests.behaviour.observer import Observer
from tests.database import memory_folder
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew
from tests.waiting import wait_until
from tests.worker.counting import counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.orm import Session

    from sa_jobqueue import ClaimedJob, EnqueuedJob, TaskRegistry
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
    assert set(events.attempts()) == {1}
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
    enqueue_held(engine, 4)
    crew.start(until_empty=True, concurrency=4, subscribers=[events, log_event])
    wait_for_effects_in_flight(observer, 4)
    with counting("do_connect") as attempts:
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


@pytest.mark.parametrize("seconds", [2, pytest.param(20, marks=pytest.mark.timeout(180))])
def test_an_outage_of_many_leases_spends_no_attempt_of_the_runs_that_it_interrupts(
    seconds: int, crew: Crew, engine: Engine, server: EmbeddedServer, observer: Observer, events: Events, go_on: Event
) -> None:
    enqueue_held(engine, 12, task="hold_briefly")
    for _ in range(4):
        crew.start(concurrency=2)
    wait_for_effects_in_flight(observer, 8)
    server.stop("immediate")
    events.wait_for(Outage, count=4)
    go_on.set()
    Event().wait(seconds)  # nothing to wait for: the length of the outage is what is tried
    server.start()
    wait_until(lambda: events.outcomes().count("done") == 12, timeout=60, what="all jobs to be done")
    events.wait_for(Recovered, count=4)

    assert sorted(map(int, observer.effects())) == list(range(12))
    assert set(events.attempts()) == {1}
    assert events.outcomes().count("snoozed") == 8
    assert events.of(RunUnrecorded) == []
    assert len(events.of(Outage)) == len(events.of(Recovered)) == 4
    assert len(events.of(HeartbeatFailed)) <= 4


def test_after_an_outage_no_sweep_is_faster_than_the_owners_of_leases_that_are_over(
    crew: Crew, engine: Engine, server: EmbeddedServer, observer: Observer, events: Events, go_on: Event
) -> None:
    enqueue_held(engine, 4, task="hold_briefly")
    crew.start(concurrency=4)
    wait_for_effects_in_flight(observer, 4)
    with _owners_delayed(1.0):
        server.stop("immediate")
        events.wait_for(Outage)
        go_on.set()
        server.start()
        wait_until(
            lambda: events.outcomes().count("snoozed") == 4 or _requeued(events),
            timeout=30,
            what="the runs to be recorded",
        )
        assert _requeued(events) == []
    events.wait_for(RunEnded, count=8)

    assert sorted(map(int, observer.effects())) == list(range(4))
    assert set(events.attempts()) == {1}
    assert _requeued(events) == []


def _requeued(events: Events) -> list[SweepDone]:
    return [swept for swept in events.of(SweepDone) if swept.swept.requeued]


@contextmanager
def _owners_delayed(seconds: float) -> Iterator[None]:
    """Heartbeats and records come so much later than they would."""

    def delay(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "reached AS MATERIALIZED" in statement or "before AS MATERIALIZED" in statement:
            Event().wait(seconds)

    event.listen(Engine, "before_cursor_execute", delay)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", delay)


def test_a_claim_whose_answer_is_lost_spends_no_attempt_and_waits_for_no_lease(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Control.claim

    def claim(control: Control, *given: Any) -> list[ClaimedJob]:
        jobs = real(control, *given)
        if jobs and not events.of(Outage):
            enqueue("mark")
            raise OperationalError(None, None, psycopg.OperationalError())
        return jobs

    @tasks.task(queue=QUEUE, visibility_timeout=600)
    def mark(session: Session) -> None:
        session.add(Effect(name=f"attempt {current_job().attempt}"))

    monkeypatch.setattr(Control, "claim", claim)
    first = enqueue("mark")
    crew.start(concurrency=1)
    assert events.wait_for(RunEnded)[0].job.id == first.id
    events.wait_for(RunEnded, count=2)
    assert observer.effects() == ["attempt 1"] * 2
    assert len(events.of(Outage)) == 1
