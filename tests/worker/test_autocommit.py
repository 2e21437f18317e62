"""Engines and connections in AUTOCOMMIT, where an effect would be committed before its job is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import Session

from sa_jobqueue import WorkerMisconfigured
from sa_jobqueue.errors import UnsupportedDatabase
from sa_jobqueue.observe import RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.worker.core import NAMES, before_the_second, enqueue_three, instead_of_the_second, write
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.worker.core import Both

    Declare = Callable[..., None]

AUTOCOMMIT = {"isolation_level": "AUTOCOMMIT"}
SAID = "UnsupportedDatabase: the handler's connection is in isolation level AUTOCOMMIT, where each statement commits by"
REFUSED = r"AUTOCOMMIT.*bind the sessionmaker to an engine with isolation_level='READ COMMITTED'"
KINDS = ["session", "async session", "connection", "async connection"]


def declare_of(kind: str, tasks: TaskRegistry) -> None:
    """A task ``task`` that is given such a thing, and has an effect."""

    def in_session(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    async def in_async_session(session: AsyncSession, name: str) -> None:
        session.add(Effect(name=name))

    async def on_async_connection(connection: AsyncConnection, name: str) -> None:
        await connection.run_sync(write, name)

    handlers: list[Any] = [in_session, in_async_session, write, on_async_connection]
    handler = handlers[KINDS.index(kind)]
    tasks.task(name="task", queue=QUEUE, core="connection" in kind, max_attempts=1)(handler)


def with_option(make_both: Callable[..., Both]) -> Both:
    return make_both().with_options(**AUTOCOMMIT)


def by_default(make_both: Callable[..., Both]) -> Both:
    return make_both(**AUTOCOMMIT)


@pytest.mark.parametrize("made", [with_option, by_default], ids=lambda made: made.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_whose_engine_is_in_autocommit_refuses_to_start_and_names_the_remedy(
    kind: str,
    made: Callable[..., Both],
    make_both: Callable[..., Both],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    events: Events,
) -> None:
    declare_of(kind, tasks)
    enqueue_three(enqueue)
    with pytest.raises(WorkerMisconfigured, match=REFUSED):
        crew.worker(**made(make_both).makers).run(until_empty=True)
    assert events.of(RunStarted) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_whose_default_is_autocommit_will_do_with_another_level_of_its_own(
    kind: str,
    make_both: Callable[..., Both],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    declare_of(kind, tasks)
    enqueue_three(enqueue)
    crew.drain(concurrency=1, **by_default(make_both).with_options(isolation_level="READ COMMITTED").makers)
    assert observer.effects() == list(NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_where_only_the_driver_knows_of_autocommit_each_run_is_refused_before_it_has_an_effect(
    kind: str,
    make_both: Callable[..., Both],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    declare_of(kind, tasks)
    job = enqueue("task", {"name": "never"}, max_attempts=1)
    crew.drain(**make_both(connect_args={"autocommit": True}).makers)
    assert only_error(observer, job).startswith(SAID)
    assert observer.effects() == []


def ping(connection: Connection) -> None:
    connection.scalar(text("SELECT 1"))


def test_a_connection_whose_transaction_is_refused_as_it_is_opened_goes_back_to_its_pool(
    declare_core: Declare,
    make_both: Callable[..., Both],
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    both = make_both(connect_args={"autocommit": True})
    for each in both.each:
        event.listen(each, "engine_connect", ping)
    declare_core(write, name="task")
    enqueue_three(enqueue)
    crew.drain(concurrency=1, **both.makers)
    assert (events.outcomes(), observer.effects()) == (["dead"] * 3, [])
    assert [each.pool.checkedout() for each in both.each] == [0, 0]  # type: ignore[attr-defined]  # of a QueuePool


def switch(connection: Connection) -> None:
    connection.execution_options(**AUTOCOMMIT)


def switch_after_a_rollback(connection: Connection) -> None:
    write(connection, "undone")
    connection.rollback()
    switch(connection)


def switch_and_write(connection: Connection) -> None:
    switch_after_a_rollback(connection)
    write(connection, "by itself")


def switch_and_swallow_the_refusal(connection: Connection) -> None:
    with pytest.raises(UnsupportedDatabase):
        switch_and_write(connection)


@pytest.mark.parametrize(
    "bend",
    [switch, switch_after_a_rollback, switch_and_write, switch_and_swallow_the_refusal],
    ids=lambda b: b.__name__,
)
def test_a_handler_that_switches_its_connection_to_autocommit_is_not_acknowledged_and_has_no_effect(
    bend: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    both: Both,
) -> None:
    declare_core(instead_of_the_second(bend))
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1, **both.makers)
    assert only_error(observer, jobs[1]).startswith(SAID)
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["first", "third"])


def test_a_handler_that_switches_back_is_done(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def switch_to_and_fro(connection: Connection) -> None:
        switch_and_swallow_the_refusal(connection)
        connection.execution_options(isolation_level="READ COMMITTED")

    declare_core(before_the_second(switch_to_and_fro))
    enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list(NAMES))


def test_a_handler_whose_session_asks_for_autocommit_is_not_acknowledged_and_has_no_effect(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def task(session: Session) -> None:
        session.connection(execution_options=AUTOCOMMIT)
        session.add(Effect(name="by itself"))

    job = enqueue("task", max_attempts=1)
    crew.drain()
    assert only_error(observer, job).startswith(SAID)
    assert observer.effects() == []
