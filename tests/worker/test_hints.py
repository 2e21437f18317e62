"""Hints of new jobs: they wake an idle worker after the commit, and nothing depends on them."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sa_jobqueue import AsyncJobSession, JobSession, Models, NewJob
from sa_jobqueue.hints import Debounce
from sa_jobqueue.observe import Listening, ListeningFailed, RunEnded, WorkerStarted
from sa_jobqueue.statements import hint
from sa_jobqueue.worker.line import line
from sa_jobqueue.worker.listener import Ear, Listener
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

CHANNEL = hint.channel(Models())
SLEEPY: dict[str, Any] = {"poll_interval": 600, "sweep_interval": 600}
"""A worker that would find a job only in the test after next, if nobody woke it up."""
_END_LISTENER = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'NOTIFY sa_jobqueue%'"
_END_LISTENER += " AND datname = current_database() AND pid <> pg_backend_pid()"


class Notices:
    """What a listener of the test's own has heard so far."""

    def __init__(self, engine: Engine) -> None:
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._driver: Any = self._connection.connection.driver_connection
        self._driver.execute(f"LISTEN {CHANNEL}")

    def heard(self) -> list[str]:
        """The payloads that have come since the last time; those that a finished commit sent are among them."""
        self._driver.execute("SELECT pg_notify(%s, 'end')", [CHANNEL])
        payloads: list[str] = []
        while "end" not in payloads:
            payloads += [notice.payload for notice in self._driver.notifies(timeout=10, stop_after=1)]
        return [payload for payload in payloads if payload != "end"]

    def close(self) -> None:
        self._connection.invalidate()
        self._connection.close()


@pytest.fixture
def notices(engine: Engine) -> Iterator[Notices]:
    listening = Notices(engine)
    yield listening
    listening.close()


@pytest.fixture
def marking(tasks: TaskRegistry) -> None:
    @tasks.task(queue=QUEUE)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))


@pytest.mark.usefixtures("marking")
def test_an_idle_worker_that_polls_every_ten_minutes_runs_a_job_when_it_is_committed_and_not_before(
    crew: Crew, engine: Engine, events: Events, observer: Observer
) -> None:
    crew.start(**SLEEPY)
    events.wait_for(Listening)
    with Session(engine) as session:
        JobSession(session).enqueue("mark", {"name": "woken"}, queue=QUEUE)
        session.flush()
        assert observer.effects() == []
        session.commit()
    events.wait_for(RunEnded)
    assert observer.effects() == ["woken"]


@pytest.mark.usefixtures("marking")
def test_every_job_of_a_rapid_series_is_found_although_their_hints_are_debounced(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events, observer: Observer
) -> None:
    crew.start(**SLEEPY, concurrency=1)
    events.wait_for(Listening)
    for n in range(100):
        enqueue("mark", {"name": str(n)})
    events.wait_for(RunEnded, count=100)
    assert len(observer.effects()) == 100


@pytest.mark.usefixtures("marking")
def test_a_listener_that_the_server_ends_listens_again_and_misses_nothing(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events, observer: Observer
) -> None:
    crew.start(**SLEEPY)
    events.wait_for(Listening)
    assert observer.scalar(_END_LISTENER) >= 1
    enqueue("mark", {"name": "meanwhile"})
    events.wait_for(RunEnded)
    events.wait_for(Listening, count=2)
    assert len(events.of(ListeningFailed)) == 1


@pytest.mark.usefixtures("marking")
def test_where_no_notification_arrives_it_is_said_once_and_polling_goes_on(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint, "NOTIFY", "SELECT '{channel}', '{word}'")
    crew.start(poll_interval=0.05)
    events.wait_for(ListeningFailed)
    enqueue("mark", {"name": "polled"})
    events.wait_for(RunEnded)
    assert len(events.of(ListeningFailed)) == 1
    assert events.of(Listening) == []


@pytest.mark.usefixtures("marking")
def test_a_worker_that_shall_not_listen_has_no_connection_for_it(
    crew: Crew, events: Events, enqueue: Callable[..., EnqueuedJob]
) -> None:
    crew.start(poll_interval=0.05, listen=False)
    events.wait_for(WorkerStarted)
    enqueue("mark", {"name": "polled"})
    events.wait_for(RunEnded)
    assert [thread for thread in threading.enumerate() if thread.name == "sa-jobqueue-listener"] == []
    assert events.of(Listening) == []


@pytest.mark.usefixtures("marking")
def test_a_worker_listens_where_it_is_told_to(
    crew: Crew, engine: Engine, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    crew.start(**SLEEPY, listen=engine.url.set(drivername="postgresql"))
    events.wait_for(Listening)
    enqueue("mark", {"name": "woken"})
    events.wait_for(RunEnded)


@pytest.mark.usefixtures("marking")
def test_what_is_enqueued_on_a_connection_or_in_a_session_that_joined_one_is_not_hinted_at(
    engine: Engine, tasks: TaskRegistry, notices: Notices, observer: Observer
) -> None:
    with engine.begin() as connection:
        tasks["mark"].enqueue(connection, "on the connection")
        with Session(connection, join_transaction_mode="rollback_only") as session:
            tasks["mark"].enqueue(session, "in a session")
            session.commit()
    assert notices.heard() == []
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 2


def test_a_few_hints_follow_each_other_at_once_and_then_one_in_thirty_milliseconds() -> None:
    debounce = Debounce()
    sent = [ms for ms in range(1_000) if debounce.due(["q"], ms / 1_000)]
    assert sent[:4] == [0, 1, 2, 30]
    assert {later - earlier for earlier, later in pairwise(sent[3:])} <= {30, 31}  # of numbers with a binary fraction
    assert debounce.due(["another"], 1.0) == ["another"]


def test_a_thousand_jobs_of_one_transaction_are_one_hint(engine: Engine, notices: Notices) -> None:
    with Session(engine) as session, session.begin():
        jobs = JobSession(session)
        jobs.enqueue_many([NewJob("t", queue="bulk") for _ in range(500)])
        for _ in range(500):
            jobs.enqueue("t", queue="bulk")
    assert notices.heard() == [hint.mark("bulk")]


def test_what_is_rolled_back_or_due_later_sends_no_hint(engine: Engine, notices: Notices) -> None:
    with Session(engine) as session:
        JobSession(session).enqueue("t")
        session.rollback()
        session.execute(text("SELECT 1"))
        session.commit()
        JobSession(session).enqueue("t")
        session.close()
        JobSession(session).enqueue("t", delay=60)
        session.commit()
    assert notices.heard() == []


def test_a_redriven_dead_letter_is_hinted_at(engine: Engine, notices: Notices) -> None:
    with Session(engine) as session:
        jobs = JobSession(session)
        jobs.enqueue("t", queue="dead", delay=0)
        job = jobs.claim("dead")
        assert job is not None
        jobs.reject(job, "no")
        session.commit()
        assert notices.heard() == []
        jobs.redrive(job.id)
        session.commit()
    assert notices.heard() == [hint.mark("dead")]


@pytest.mark.parametrize("queue", ["a" * 255, "ö" * 100, "with 'quotes' and \"more\"", "UPPER lower", "x" * 64])
def test_a_queue_of_any_name_is_hinted_at(queue: str, engine: Engine, notices: Notices) -> None:
    with Session(engine) as session, session.begin():
        JobSession(session).enqueue("t", {"text": "x" * 20_000}, queue=queue)
    assert notices.heard() == [hint.mark(queue)]
    assert len(CHANNEL) <= 63


async def test_an_async_session_hints_after_its_commit(engine: Engine, notices: Notices) -> None:
    async_engine = create_async_engine(engine.url)
    async with AsyncSession(async_engine) as session:
        await AsyncJobSession(session).enqueue("t", queue="async")
        await session.commit()
        assert (await session.execute(text("SELECT 1"))).scalar_one() == 1
    await async_engine.dispose()
    assert notices.heard() == [hint.mark("async")]


def test_an_engine_with_hints_turned_off_sends_none(engine: Engine, notices: Notices) -> None:
    quiet = create_engine(engine.url, execution_options={"sa_jobqueue_hints": False})
    with Session(quiet) as session, session.begin():
        JobSession(session).enqueue("t")
    quiet.dispose()
    assert notices.heard() == []


def test_a_session_inside_a_transaction_of_its_test_sends_no_hint_before_its_time(
    engine: Engine, notices: Notices
) -> None:
    with engine.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            JobSession(session).enqueue("t")
            session.commit()
        assert outer.is_active
        outer.rollback()
    assert notices.heard() == []


def test_a_connection_that_dies_with_its_commit_is_no_error_of_the_caller(
    engine: Engine, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint, "NOTIFY", "SELECT pg_terminate_backend(pg_backend_pid()), '{channel}', '{word}'")
    with Session(engine) as session:
        JobSession(session).enqueue("t", queue="last words")
        session.commit()
    wait_until(lambda: observer.count("queued") == 1, what="the job that was committed")
    with Session(engine) as session:
        assert session.scalar(text("SELECT 1")) == 1


def test_a_listener_that_waits_for_hints_ends_when_it_is_closed(engine: Engine, events: Events) -> None:
    with line(engine, 5) as own:
        listener = Listener(own, Models(), "w", Ear(lambda _: None, lambda: None, lambda: None), events)
        listener.start()
        events.wait_for(Listening)
        listener.close()
        assert not listener.is_alive()
