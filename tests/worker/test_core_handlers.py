"""Core handlers: functions and coroutine functions on a connection, which commits their effect with the ack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import current_job
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.worker.core import NAMES, before_the_second, enqueue_three, write
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

    Declare = Callable[..., None]

_TRANSACTIONS = (
    "SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM effect "
    "UNION ALL SELECT xmin::text FROM jobqueue_dedup_key UNION ALL SELECT xmin::text FROM jobqueue_job_log) rows"
)


def test_effect_dedup_row_and_ack_are_one_commit(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    declare_core(write)
    jobs = enqueue_three(enqueue, "write")
    crew.drain(concurrency=1, job_log=True)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list(NAMES))
    assert [observer.job(job.id) for job in jobs] == [None] * 3
    assert (len(observer.dedup_keys()), observer.scalar(_TRANSACTIONS)) == (3, 3)


def test_a_handler_that_raises_leaves_nothing_and_its_error_is_recorded(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def task(connection: Connection, name: str) -> None:
        write(connection, name)
        if name == "second":
            raise ValueError(name)

    declare_core(task)
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["first", "third"])
    assert (only_error(observer, jobs[1]), len(observer.dedup_keys())) == ("ValueError: second", 2)


def test_a_handler_that_sends_nothing_is_acknowledged(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    declare_core(lambda _connection, _name: None, name="task")
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), len(observer.dedup_keys())) == (["done"] * 3, 3)
    assert [observer.job(job.id) for job in jobs] == [None] * 3


def test_one_worker_runs_handlers_on_connections_and_in_sessions_of_both_kinds(
    tasks: TaskRegistry, declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    async def in_a_session(session: AsyncSession, name: str) -> None:
        session.add(Effect(name=name))

    @tasks.task(queue=QUEUE, core=True)
    async def on_a_connection(connection: AsyncConnection, name: str) -> None:
        await connection.run_sync(write, name)
        assert current_job().args == {"name": name}

    declare_core(write)
    for task in ("write", "in_a_session", "on_a_connection"):
        enqueue_three(enqueue, task)
    crew.drain()
    assert sorted(observer.effects()) == sorted(NAMES * 3)


def roll_back(connection: Connection) -> None:
    write(connection, "undone")
    connection.rollback()


def roll_a_savepoint_back(connection: Connection) -> None:
    savepoint = connection.begin_nested()
    write(connection, "undone")
    savepoint.rollback()


def survive_an_error_in_a_savepoint(connection: Connection) -> None:
    with pytest.raises(DBAPIError), connection.begin_nested():
        connection.execute(text("SELECT 1/0"))


def leave_a_savepoint_open(connection: Connection) -> None:
    connection.begin_nested()


def leave_savepoints_open_and_roll_the_inner_one_back(connection: Connection) -> None:
    connection.begin_nested()
    connection.begin_nested().rollback()


def begin_by_itself(connection: Connection) -> None:
    connection.begin()


FINE = [
    roll_back,
    roll_a_savepoint_back,
    survive_an_error_in_a_savepoint,
    leave_a_savepoint_open,
    leave_savepoints_open_and_roll_the_inner_one_back,
    begin_by_itself,
]


@pytest.mark.parametrize("act", FINE, ids=lambda act: act.__name__)
def test_what_a_handler_may_do_with_its_transaction_keeps_what_it_did_last_and_the_ack(
    act: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    declare_core(before_the_second(act))
    enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list(NAMES))
    assert (observer.count("claimed"), len(observer.dedup_keys())) == (0, 3)


def test_a_job_whose_effect_exists_is_acknowledged_without_a_call(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    declare_core(write)
    for name in NAMES:
        enqueue("write", {"name": name}, dedup_key="known")
        crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "duplicate", "duplicate"], ["first"])
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_an_effect_that_somebody_else_has_had_meanwhile_makes_the_run_a_duplicate_without_one(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def be_overtaken(_connection: Connection) -> None:
        job = current_job()
        values = {"scope": job.dedup_scope, "key": job.idempotency_key}
        observer.all("INSERT INTO jobqueue_dedup_key (scope, key, job_id) VALUES (:scope, :key, -1)", **values)

    declare_core(before_the_second(be_overtaken))
    enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "duplicate", "done"], ["first", "third"])


@pytest.mark.parametrize("options", [{"natural_keys_only": True}, {"job_log": True}], ids=str)
def test_what_the_worker_was_told_of_keys_and_of_the_log_holds_for_connections_too(
    options: dict[str, bool],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    declare_core(before_the_second(leave_a_savepoint_open))
    enqueue_three(enqueue)
    crew.drain(concurrency=1, **options)
    assert events.outcomes() == ["done"] * 3
    assert len(observer.dedup_keys()) == (0 if "natural_keys_only" in options else 3)
    assert observer.scalar("SELECT count(*) FROM jobqueue_job_log") == (3 if "job_log" in options else 0)
