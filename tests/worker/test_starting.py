"""What a worker refuses to start with, and jobs that it leaves to others."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.orm import sessionmaker as session_factory

from sa_jobqueue import JobSession, Models, SchemaMismatch, TaskRegistry, Worker, WorkerMisconfigured
from sa_jobqueue.observe import RunEnded, RunStarted, WorkerStarted
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.line import line
from sa_jobqueue.worker.verdict import Ending, Verdict
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.test_leases import LEASE, watch_leases

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import sessionmaker

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


SERIALIZABLE_BY_DEFAULT = "-c default_transaction_isolation=serializable"
REMEMBER_LEVELS = """
CREATE TABLE levels (level text);
CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO levels VALUES (current_setting('transaction_isolation')); RETURN NULL; END $$;
CREATE TRIGGER remember AFTER INSERT OR UPDATE ON jobqueue_job FOR EACH ROW EXECUTE FUNCTION remember()
"""


def declare(tasks: TaskRegistry, name: str) -> None:
    @tasks.task(queue=QUEUE, name=name)
    def mark(session: Session) -> None:
        session.add(Effect(name=name))


def test_a_worker_without_any_task_refuses_to_start(tasks: TaskRegistry, sessionmaker: sessionmaker[Session]) -> None:
    with pytest.raises(WorkerMisconfigured, match="no tasks; import the modules that declare them"):
        Worker(tasks, sessionmaker)


def test_a_job_of_a_task_that_only_a_newer_worker_knows_is_left_alone_until_that_one_comes(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    declare(tasks, "old_kind")
    new = enqueue("new_kind", priority=-1)
    enqueue("old_kind")
    old_worker = crew.start()
    events.wait_for(RunEnded)
    old_worker.stop()
    crew.wait()
    row = observer.job(new.id)
    assert row is not None
    assert (row.status, row.attempt, row.token) == ("queued", 0, 0)

    declare(tasks, "new_kind")
    crew.drain()
    assert observer.effects() == ["old_kind", "new_kind"]


def test_jobs_of_unknown_tasks_at_the_head_of_the_queue_do_not_hide_the_others(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    declare(tasks, "old_kind")
    for _ in range(20):
        enqueue("new_kind", priority=-1)
    enqueue("old_kind")
    crew.drain(concurrency=1)
    assert observer.effects() == ["old_kind"]


def test_a_pool_that_is_too_small_is_refused_with_the_number_that_it_takes(
    tasks: TaskRegistry, crew: Crew, engine: Engine
) -> None:
    declare(tasks, "task")
    small = create_engine(engine.url, pool_size=2, max_overflow=1)
    worker = crew.worker(sessionmaker=session_factory(small), concurrency=4)
    with pytest.raises(WorkerMisconfigured, match="need a pool of 4 connections, and this engine's allows 3"):
        worker.run()


def test_handlers_that_hold_every_connection_of_their_pool_do_not_starve_the_worker(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], engine: Engine, observer: Observer
) -> None:
    declare(tasks, "mark")
    exact = create_engine(engine.url, pool_size=2, max_overflow=0, pool_timeout=1)
    for _ in range(20):
        enqueue("mark")
    crew.drain(sessionmaker=session_factory(exact), concurrency=2)
    exact.dispose()
    assert observer.effects() == ["mark"] * 20


def test_handlers_that_hold_every_connection_of_their_pool_for_several_leases_keep_them(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def hold(session: Session) -> None:
        session.execute(text("SELECT 1"))
        go_on.wait(30)

    exact = create_engine(engine.url, pool_size=2, max_overflow=0, pool_timeout=1)
    jobs = [enqueue("hold"), enqueue("hold")]
    crew.start(sessionmaker=session_factory(exact), concurrency=2, grace=0)
    wait_until(lambda: exact.pool.checkedout() == 2, what="both connections to be taken")
    watch_leases(observer, *jobs)
    go_on.set()
    events.wait_for(RunEnded, count=2)
    exact.dispose()
    assert (events.outcomes(), len(events.of(RunStarted))) == (["done"] * 2, 2)


def test_sessions_that_are_bound_to_one_connection_are_refused(tasks: TaskRegistry, crew: Crew, engine: Engine) -> None:
    declare(tasks, "task")
    with engine.connect() as connection:
        worker = crew.worker(sessionmaker=session_factory(connection))
        with pytest.raises(WorkerMisconfigured, match="bound to one connection; a worker needs an engine"):
            worker.run()


def test_a_coroutine_function_without_async_sessions_is_refused_by_its_name(
    tasks: TaskRegistry, sessionmaker: sessionmaker[Session]
) -> None:
    @tasks.task
    async def fetch(_session: AsyncSession) -> None: ...

    with pytest.raises(WorkerMisconfigured, match="fetch: such a handler needs the worker's async_sessionmaker"):
        Worker(tasks, sessionmaker)


def test_a_function_without_sessions_is_refused_by_its_name(tasks: TaskRegistry) -> None:
    declare(tasks, "task")
    with pytest.raises(WorkerMisconfigured, match="task: such a handler needs the worker's sessionmaker"):
        Worker(tasks)


def test_a_worker_without_a_slot_is_refused(tasks: TaskRegistry, crew: Crew) -> None:
    declare(tasks, "task")
    with pytest.raises(WorkerMisconfigured, match="concurrency must be at least 1; got 0"):
        crew.worker(concurrency=0)


def test_a_database_that_is_not_postgresql_is_refused(tasks: TaskRegistry, crew: Crew) -> None:
    declare(tasks, "task")
    worker = crew.worker(sessionmaker=session_factory(create_engine("sqlite://")), concurrency=1)
    with pytest.raises(WorkerMisconfigured, match="needs PostgreSQL; the sessionmaker is bound to sqlite"):
        worker.run()


def test_a_database_without_the_tables_is_refused_before_the_first_poll(
    tasks: TaskRegistry, crew: Crew, empty_database_url: str, events: Events
) -> None:
    declare(tasks, "task")
    empty = create_engine(empty_database_url)
    with pytest.raises(SchemaMismatch):
        crew.worker(sessionmaker=session_factory(empty)).run()
    assert events.of(WorkerStarted) == []


def test_the_workers_own_connections_hide_parameters_where_the_applications_do(engine: Engine) -> None:
    for hidden in (True, False):
        home = create_engine(engine.url, hide_parameters=hidden)
        with line(home, 5) as own:
            assert own.engine.hide_parameters is hidden


def test_the_server_bounds_each_transaction_of_the_workers_own(engine: Engine) -> None:
    with line(engine, 5) as own, own.engine.begin() as connection:
        bounds = [
            connection.scalar(text(f"SHOW {kind}_timeout")) for kind in ("idle_in_transaction_session", "statement")
        ]
    assert bounds == ["5s", "5s"]


@pytest.mark.parametrize(
    "level", [{"isolation_level": "SERIALIZABLE"}, {"connect_args": {"options": SERIALIZABLE_BY_DEFAULT}}]
)
def test_the_workers_own_statements_read_committed_whatever_the_application_does(
    level: dict[str, Any], engine: Engine, observer: Observer
) -> None:
    home = create_engine(engine.url, **level)
    observer.all(REMEMBER_LEVELS)
    with Session(home) as session, session.begin():
        JobSession(session).enqueue("t")
    with line(home, 5) as own:
        control = Control(own, Models(), "w", job_log=False)
        control.open()
        (job,) = control.claim("default", 1, {"t": 30.0}, None)
        control.record(job, Verdict(Ending.RELEASE))
    home.dispose()
    assert observer.all("SELECT level FROM levels") == [("serializable",), ("read committed",), ("read committed",)]
