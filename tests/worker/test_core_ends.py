"""Core handlers that lose their lease, their time or their connection: the server process that they are in is followed.

Also where they have rolled back, or connected anew, and so are in a later transaction than their first.
"""

from __future__ import annotations

import asyncio
from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import CommitRefused, JobQueueError, current_job
from sa_jobqueue.observe import LeaseWasLost, RunEnded, RunStarted
from tests.proofs.app import QUEUE
from tests.waiting import no_thread_left_behind, wait_until
from tests.worker.core import NAMES, before_the_second, enqueue_three, write
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.worker.core import Both

    Before = Callable[[Connection, Observer], None]
    Declare = Callable[..., None]

_END = "SELECT pg_terminate_backend(:pid)"
_OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "
_SLEEPING = f"{_OTHERS} query LIKE 'SELECT pg_sleep%' AND state = 'active'"
_HOLDING = f"{_OTHERS} state = 'idle in transaction' AND query LIKE 'INSERT INTO effect%'"


def pid_of(connection: Connection) -> int:
    return int(connection.scalar(text("SELECT pg_backend_pid()")) or 0)


def at_first(_connection: Connection, _observer: Observer) -> None: ...


def after_a_rollback(connection: Connection, _observer: Observer) -> None:
    write(connection, "undone")
    connection.rollback()


def after_it_connected_anew(connection: Connection, observer: Observer) -> None:
    before = pid_of(connection)
    observer.scalar(_END, pid=before)
    with pytest.raises(DBAPIError):
        connection.execute(text("SELECT 1"))
    connection.rollback()
    assert pid_of(connection) != before


@pytest.fixture(params=[at_first, after_a_rollback, after_it_connected_anew], ids=lambda before: before.__name__)
def before(request: pytest.FixtureRequest, observer: Observer) -> Callable[[Connection], None]:
    return lambda connection: request.param(connection, observer)


def test_a_handler_that_lost_its_lease_commits_nothing_and_the_next_one_on_its_connection_does(
    before: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    both: Both,
) -> None:
    def lose_the_lease(connection: Connection) -> None:
        before(connection)
        observer.steal(current_job().id)

    declare_core(before_the_second(lose_the_lease))
    enqueue_three(enqueue)
    crew.drain(concurrency=1, **both.makers)
    assert (events.outcomes(), observer.effects()) == (["done", "done"], ["first", "third"])
    assert len(events.of(LeaseWasLost)) == 1


def test_a_handler_that_commits_too_early_in_a_later_transaction_is_refused_as_in_its_first(
    before: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    def commit(connection: Connection, name: str) -> None:
        before(connection)
        write(connection, name)
        with pytest.raises(CommitRefused):
            connection.commit()

    declare_core(commit)
    job = enqueue("commit", max_attempts=1)
    crew.drain()
    assert only_error(observer, job).startswith("CommitRefused")
    assert observer.effects() == []


def test_a_handler_over_its_time_limit_is_ended_where_it_is_now(
    before: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    def hang(connection: Connection, name: str) -> None:
        before(connection)
        write(connection, name)
        connection.execute(text("SELECT pg_sleep(1000)"))

    declare_core(hang, time_limit=0.5)
    job = enqueue("hang", max_attempts=1)
    crew.start(concurrency=1)
    events.wait_for(RunEnded)
    assert only_error(observer, job).startswith("TimeLimitExceeded")
    wait_until(lambda: observer.scalar(_SLEEPING) == 0, what="the statement of the handler to be ended")
    assert observer.effects() == []


def test_a_function_that_hangs_in_python_over_its_time_limit_holds_nothing_any_more(
    before: Callable[[Connection], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, core=True, time_limit=0.5)
    def hang(connection: Connection) -> None:
        before(connection)
        write(connection, "never")
        go_on.wait(30)

    go_on = Event()
    job = enqueue("hang", max_attempts=1)
    with no_thread_left_behind():
        worker = crew.start(concurrency=1)
        events.wait_for(RunEnded)
        assert only_error(observer, job).startswith("TimeLimitExceeded")
        wait_until(lambda: observer.scalar(_HOLDING) == 0, what="the session of the handler to be ended")
        go_on.set()
        worker.stop()
    assert observer.effects() == []


def test_a_coroutine_that_hangs_over_its_time_limit_is_cancelled_and_gives_its_connection_back(
    before: Callable[[Connection], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    both: Both,
) -> None:
    @tasks.task(queue=QUEUE, core=True, time_limit=0.5)
    async def hang(connection: AsyncConnection) -> None:
        await connection.run_sync(before)
        await connection.run_sync(write, "never")
        await asyncio.Event().wait()

    job = enqueue("hang", max_attempts=1)
    crew.drain(concurrency=1, **both.makers)
    assert only_error(observer, job).startswith("TimeLimitExceeded")
    assert both.later.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    assert observer.effects() == []


def test_a_run_that_lost_its_lease_before_its_first_statement_gets_no_transaction_any_more(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE, core=True, visibility_timeout=0.6)
    def begin_late(connection: Connection) -> None:
        assert go_on.wait(30)
        try:
            write(connection, "never")
        except JobQueueError as error:
            said.append(str(error))
        over.set()

    go_on, over = Event(), Event()
    said: list[str] = []
    job = enqueue("begin_late")
    with no_thread_left_behind():
        worker = crew.start(concurrency=1)
        events.wait_for(RunStarted)
        observer.steal(job.id)
        events.wait_for(LeaseWasLost)
        go_on.set()
        assert over.wait(20)
        worker.stop()
    assert said == [f"the run of job {job.id} was given up before this transaction began: lease lost"]
    assert observer.effects() == []


def test_a_handler_whose_server_process_is_ended_runs_again_and_spends_no_attempt(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def be_ended(connection: Connection, name: str) -> None:
        write(connection, name)
        if len(events.of(RunStarted)) == 1:
            observer.scalar(_END, pid=pid_of(connection))
        write(connection, "again")

    declare_core(be_ended)
    enqueue("be_ended", max_attempts=1)
    crew.start()
    events.wait_for(RunEnded, count=2)
    assert (events.outcomes(), events.attempts()) == (["snoozed", "done"], [1, 1])
    assert observer.effects() == ["it", "again"]


def test_a_handler_that_connects_anew_is_done_with_what_it_did_then(
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    both: Both,
) -> None:
    declare_core(before_the_second(lambda connection: after_it_connected_anew(connection, observer)))
    enqueue_three(enqueue)
    crew.drain(concurrency=1, **both.makers)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list(NAMES))
