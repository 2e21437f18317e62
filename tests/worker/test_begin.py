"""How the transactions of functions begin: the worker sends a plain BEGIN, the driver any other."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from sa_jobqueue import RejectJob
from tests.proofs.app import QUEUE
from tests.worker.core import NAMES, enqueue_three, write
from tests.worker.test_lost_connections import END_ALL_OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def driver_of(connection: Connection) -> Any:
    return connection.connection.driver_connection


def test_a_transaction_begins_before_its_first_statement(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def in_session(session: Session) -> None:
        seen.append(driver_of(session.connection()).info.transaction_status)

    @tasks.task(queue=QUEUE, core=True)
    def on_connection(connection: Connection) -> None:
        connection.begin()
        seen.append(driver_of(connection).info.transaction_status)

    seen: list[TransactionStatus] = []
    enqueue("in_session")
    enqueue("on_connection")
    crew.drain(concurrency=1)
    assert (events.outcomes(), seen) == (["done"] * 2, [TransactionStatus.INTRANS] * 2)


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"postgresql_readonly": True}, "transaction_read_only"),
        ({"postgresql_deferrable": True}, "transaction_deferrable"),
    ],
)
def test_a_transaction_has_the_properties_that_its_handler_asks_for(
    options: dict[str, bool], setting: str, tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob]
) -> None:
    @tasks.task(queue=QUEUE, core=True, max_attempts=1)
    def look(connection: Connection) -> None:
        connection.execution_options(**options)
        seen.append(connection.scalar(text(f"SHOW {setting}")))
        raise RejectJob

    seen: list[str] = []
    enqueue("look")
    crew.drain()
    assert seen == ["on"]


def test_a_transaction_may_begin_in_a_pipeline_of_the_driver(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, core=True, max_attempts=1)
    def pipe(connection: Connection, name: str) -> None:
        with driver_of(connection).pipeline() if name == "second" else nullcontext():
            connection.begin()
        write(connection, name)

    enqueue_three(enqueue, "pipe")
    crew.drain(concurrency=1)
    assert observer.effects() == list(NAMES)


def test_a_begin_on_a_connection_that_has_broken_meanwhile_fails_as_a_statement_does_and_spends_no_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE, core=True)
    def begin(connection: Connection, name: str) -> None:
        if name == "second" and not errors:
            observer.scalar(END_ALL_OTHERS)
            try:
                connection.begin()
            except OperationalError as error:
                errors.append(error)
                raise
        write(connection, name)

    errors: list[OperationalError] = []
    enqueue_three(enqueue, "begin")
    crew.drain(concurrency=1)
    assert [(error.statement, error.connection_invalidated) for error in errors] == [("BEGIN", True)]
    assert set(events.attempts()) == {1}
    assert sorted(observer.effects()) == sorted(NAMES)
