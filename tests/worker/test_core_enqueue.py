"""Jobs that a Core handler enqueues are in its transaction, which the worker commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession, TaskRegistry
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sa_jobqueue import EnqueuedJob
    from sa_jobqueue.tasks import Task
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew


@pytest.fixture
def ship(tasks: TaskRegistry) -> Task[[str], None]:
    @tasks.task(queue=QUEUE, core=True)
    def ship(connection: Connection, name: str) -> None:
        connection.execute(insert(Effect).values(name=name))

    return ship


def order_by(hand_on: Callable[[Connection, str], Any], tasks: TaskRegistry) -> None:
    """A task ``order`` that does nothing but hand its job on, and raises then if it is told to."""

    @tasks.task(queue=QUEUE, core=True)
    def order(connection: Connection, name: str) -> None:
        hand_on(connection, name)
        if name == "bad":
            raise ValueError(name)


def order_by_coroutine(ship: Task[[str], None], tasks: TaskRegistry) -> None:
    @tasks.task(queue=QUEUE, core=True)
    async def order(connection: AsyncConnection, name: str) -> None:
        await ship.enqueue(connection, name)
        if name == "bad":
            raise ValueError(name)


def in_a_session(ship: Task[[str], None]) -> Callable[[Connection, str], None]:
    def hand_on(connection: Connection, name: str) -> None:
        with connection.begin_nested(), Session(connection, join_transaction_mode="rollback_only") as session:
            JobSession(session).enqueue_many([ship.new_job(name)])

    return hand_on


@pytest.mark.parametrize("way", ["connection", "session", "coroutine"])
def test_a_job_of_a_core_handler_is_there_if_and_only_if_the_handlers_own_job_is_committed(
    way: str,
    ship: Task[[str], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    if way == "coroutine":
        order_by_coroutine(ship, tasks)
    else:
        order_by(ship.enqueue if way == "connection" else in_a_session(ship), tasks)
    for name in ("good", "bad"):
        enqueue("order", {"name": name}, max_attempts=1)

    crew.drain()

    assert observer.effects() == ["good"]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_a_caller_may_enqueue_with_the_first_statement_on_its_connection(
    ship: Task[[str], None], engine: Engine, observer: Observer
) -> None:
    with engine.connect() as connection:
        ship.enqueue(connection, "now")
        assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0
        connection.commit()
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 1
