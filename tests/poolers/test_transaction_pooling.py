"""Everything works through a pgbouncer in transaction mode that has two server connections."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession, LeaseLost, TaskRegistry, Worker
from sa_jobqueue.migrations import check_schema
from sa_jobqueue.migrations.runner import migrate
from sa_jobqueue.observe import LeaseWasLost, RunEnded, RunStarted
from tests.behaviour.business import Effect
from tests.poolers.conftest import UNPREPARED
from tests.poolers.pgbouncer import POOL
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew, Events
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL, Engine
    from sqlalchemy.orm import sessionmaker

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer

JOBS = 200


@pytest.fixture
def mark(tasks: TaskRegistry) -> None:
    @tasks.task(queue=QUEUE)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))


@pytest.fixture
def stuck(tasks: TaskRegistry) -> Iterator[None]:
    """A task whose handler hangs in Python, in the middle of its transaction."""
    never = threading.Event()

    @tasks.task(queue=QUEUE, visibility_timeout=1.0, time_limit=None)
    def hang(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        never.wait(60)

    tasks.task(hang.function, name="hang_too_long", queue=QUEUE, time_limit=0.3)
    yield
    never.set()


def enqueue_all(factory: sessionmaker[Session]) -> list[str]:
    names = [f"{n:03}" for n in range(JOBS)]
    with factory.begin() as session:
        for name in names:
            JobSession(session).enqueue("mark", {"name": name}, queue=QUEUE, dedup_key=name)
    return names


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize(("workers", "concurrency"), [(4, 1), (1, 4)])
def test_two_hundred_jobs_of_workers_that_share_two_server_connections_run_once_each(
    crew: Crew, pooled: sessionmaker[Session], observer: Observer, events: Events, workers: int, concurrency: int
) -> None:
    names = enqueue_all(pooled)

    for _ in range(workers):
        crew.start(concurrency=concurrency, until_empty=True)
    events.wait_for(RunEnded, count=JOBS)
    crew.wait()

    assert sorted(observer.effects()) == names
    assert events.outcomes() == ["done"] * JOBS
    assert observer.scalar("SELECT count(*) FROM jobqueue_dedup_key") == JOBS


@pytest.mark.usefixtures("mark")
def test_nothing_of_a_session_is_left_on_the_server_connections(
    crew: Crew, pooled_engine: Engine, pooled: sessionmaker[Session], observer: Observer
) -> None:
    enqueue_all(pooled)

    crew.drain(concurrency=4)

    assert leftovers(pooled_engine) == [("0", "0", "read committed", 0, 0)] * POOL
    assert observer.scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_a_service_claims_extends_and_acknowledges_and_a_stale_owner_is_refused(
    pooled: sessionmaker[Session], observer: Observer
) -> None:
    with pooled.begin() as session:
        JobSession(session).enqueue("mark", {"name": "x"}, queue=QUEUE)
    with pooled.begin() as session:
        stale = JobSession(session).claim(QUEUE)
    assert stale is not None
    observer.make_due(stale.id)
    with pooled.begin() as session:
        job = JobSession(session).claim(QUEUE)
    assert job is not None

    with pooled.begin() as session:
        assert JobSession(session).heartbeat([stale, job]) == [stale]
    with pytest.raises(LeaseLost), pooled.begin() as session:
        JobSession(session).ack(stale)
    with pooled.begin() as session:
        JobSession(session).ack(job)

    assert observer.job(job.id) is None


@pytest.mark.usefixtures("stuck", "mark")
def test_a_run_over_its_time_limit_is_ended_on_its_server_connection(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue("hang_too_long", max_attempts=1)
    enqueue("mark", {"name": "next"})

    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=2)

    assert events.outcomes() == ["dead", "done"]
    assert observer.effects() == ["next"]
    assert locks_on_effects(observer) == 0


@pytest.mark.usefixtures("stuck")
def test_a_run_that_lost_its_lease_is_ended_on_its_server_connection(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    job = enqueue("hang")
    crew.start(concurrency=1)
    events.wait_for(RunStarted)

    observer.steal(job.id)
    (lost,) = events.wait_for(LeaseWasLost)

    assert lost.job.id == job.id
    wait_until(lambda: locks_on_effects(observer) == 0, what="the server to end the statement")
    assert observer.effects() == []


def test_coroutines_alone_need_no_other_setting(
    tasks: TaskRegistry, pooled_url: str, pooled: sessionmaker[Session], events: Events, observer: Observer
) -> None:
    aio = pytest.importorskip("sqlalchemy.ext.asyncio")

    @tasks.task(queue=QUEUE)
    async def mark(session: aio.AsyncSession, name: str) -> None:
        session.add(Effect(name=name))

    names = enqueue_all(pooled)
    factory = aio.async_sessionmaker(aio.create_async_engine(pooled_url, connect_args=UNPREPARED))
    Worker(tasks, async_sessionmaker=factory, concurrency=4, subscribers=[events]).run(until_empty=True)

    assert sorted(observer.effects()) == names


def test_the_tables_are_made_through_it(pooler: URL, empty_database_url: str) -> None:
    url = pooler.set(database=make_url(empty_database_url).database)
    engine = create_engine(url, connect_args=UNPREPARED)
    migrate(engine)

    with engine.connect() as connection:
        check_schema(connection)
        assert connection.scalar(text("SHOW lock_timeout")) == "0"
    engine.dispose()


def leftovers(pooled: Engine) -> list[tuple[object, ...]]:
    """Timeouts, isolation, prepared statements and temporary tables of each server connection."""
    sql = text(
        "SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('lock_timeout'), "
        "current_setting('default_transaction_isolation'), (SELECT count(*) FROM pg_prepared_statements), "
        "(SELECT count(*) FROM pg_class WHERE relpersistence = 't'), pg_backend_pid()"
    )
    with pooled.connect() as one, pooled.connect() as other:
        seen = [connection.execute(sql).one() for connection in (one, other)]
    assert len({row[-1] for row in seen}) == POOL
    return [tuple(row)[:-1] for row in seen]


def locks_on_effects(observer: Observer) -> int:
    held = "SELECT count(*) FROM pg_locks WHERE relation = 'effect'::regclass AND mode = 'RowExclusiveLock'"
    return observer.scalar(held)
