"""Core handlers on the application's engines, with all that those have: listeners, levels, schemas, pools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, event, select, text
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession, NewJob, metadata
from tests.behaviour.business import Base
from tests.proofs.app import QUEUE
from tests.worker.core import NAMES, before_the_second, enqueue_three, write
from tests.worker.test_core_handlers import FINE, leave_a_savepoint_open

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.worker.core import Both

    Declare = Callable[..., None]


def test_a_listener_that_sends_something_on_each_new_connection_may_begin_the_transaction(
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    both: Both,
) -> None:
    def ping(connection: Connection) -> None:
        connection.scalar(select(1))

    for each in both.each:
        event.listen(each, "engine_connect", ping)
    declare_core(write)
    enqueue_three(enqueue, "write")
    crew.drain(concurrency=1, **both.makers)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list(NAMES))


def test_an_ack_does_not_go_with_its_commit_where_somebody_listens_to_statements(
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    events: Events,
    both: Both,
) -> None:
    def hear(_connection: object, _cursor: object, sql: str, *_: object) -> None:
        heard.append(sql)

    heard: list[str] = []
    for each in both.each:
        event.listen(each, "before_cursor_execute", hear)
    declare_core(write)
    enqueue_three(enqueue, "write")
    crew.drain(concurrency=1, **both.makers)
    assert events.outcomes() == ["done"] * 3
    assert len([sql for sql in heard if sql.startswith("INSERT INTO effect")]) == 3
    assert len([sql for sql in heard if "DELETE FROM jobqueue_job" in sql]) == 3


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_handler_works_at_the_level_of_its_engine(
    level: str, declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], both: Both, events: Events
) -> None:
    def look(connection: Connection, name: str) -> None:
        seen.append(connection.scalar(text("SHOW transaction_isolation")))
        write(connection, name)

    seen: list[str] = []
    declare_core(look)
    enqueue_three(enqueue, "look")
    crew.drain(concurrency=1, **both.with_options(isolation_level=level).makers)
    assert (events.outcomes(), seen) == (["done"] * 3, [level.lower()] * 3)


def test_a_handler_works_in_the_schema_that_its_engine_translates_to(
    declare_core: Declare, crew: Crew, observer: Observer, events: Events, both: Both
) -> None:
    tenant = both.with_options(schema_translate_map={None: "tenant"})
    observer.all("CREATE SCHEMA tenant")
    for each in (metadata, Base.metadata):
        each.create_all(tenant.sync)
    declare_core(before_the_second(leave_a_savepoint_open))
    with Session(tenant.sync) as session, session.begin():
        JobSession(session).enqueue_many([NewJob("task", {"name": name}, QUEUE) for name in NAMES])
    crew.drain(concurrency=1, **tenant.makers)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, [])
    assert observer.scalar("SELECT count(*) FROM tenant.effect") == 3


def listeners(each: Engine) -> list[int]:
    """How many listen to an engine, its dialect and its pool, event by event."""
    told = each.dispatch, each.dialect.dispatch, each.pool.dispatch
    return [len(getattr(dispatch, name)) for dispatch in told for name in sorted(dispatch._event_names)]  # noqa: SLF001 - all kinds


def test_a_run_leaves_no_listener_on_the_engine(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], both: Both, events: Events
) -> None:
    def look(connection: Connection, name: str) -> None:
        write(connection, name)
        connection.begin_nested()
        assert connection.engine.pool in [each.pool for each in both.each]
        seen.append([listeners(each) for each in both.each])

    seen: list[object] = []
    before = [listeners(each) for each in both.each]
    declare_core(look)
    enqueue_three(enqueue, "look")
    crew.drain(concurrency=1, **both.makers)
    assert (events.outcomes(), seen[1:]) == (["done"] * 3, seen[:2])
    assert [listeners(each) for each in both.each] == before


def test_sessions_of_the_application_know_the_engine_that_they_were_given(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], both: Both, declare_core: Declare
) -> None:
    @tasks.task(queue=QUEUE)
    def look(session: Session) -> None:
        seen.append(session.get_bind())

    seen: list[object] = []
    declare_core(write)
    enqueue("look")
    enqueue("write", {"name": "it"})
    crew.drain(**both.makers)
    assert seen == [both.sync]
    assert both.sync._connection_cls is Connection  # noqa: SLF001 - what the worker changes in an engine of its own


def test_all_connections_are_back_in_their_pool_after_a_drain(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], both: Both, events: Events
) -> None:
    def task(connection: Connection, name: str) -> None:
        _WAYS_TO_END[name](connection)

    declare_core(task)
    for name in list(_WAYS_TO_END) * 4:
        enqueue("task", {"name": name}, max_attempts=1)
    crew.drain(concurrency=4, **both.makers)
    assert set(events.outcomes()) == {"done", "dead"}
    assert [each.pool.checkedout() for each in both.each] == [0, 0]  # type: ignore[attr-defined]  # of a QueuePool


def fail(connection: Connection) -> None:
    write(connection, "undone")
    raise ValueError


def fail_in_sql(connection: Connection) -> None:
    connection.execute(text("SELECT 1/0"))


def commit(connection: Connection) -> None:
    write(connection, "undone")
    connection.commit()


_WAYS_TO_END = {act.__name__: act for act in (*FINE, fail, fail_in_sql, commit)}


def test_a_coroutine_that_is_cancelled_anywhere_gives_its_connection_back(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], both: Both, events: Events, observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, core=True, max_attempts=1)
    async def cancelled(connection: AsyncConnection, statements: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(statements):
            await connection.run_sync(write, "undone")
        task.cancel()
        await connection.run_sync(write, "undone")

    for statements in range(4):
        enqueue("cancelled", {"statements": statements}, max_attempts=1)
    crew.drain(concurrency=2, **both.makers)
    assert (events.outcomes(), observer.effects()) == (["dead"] * 4, [])
    assert both.later.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
