"""Handlers that swallow a database error: the transaction is lost, and the record names what it was lost to."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from sa_jobqueue import JobSession, NewJob
from sa_jobqueue.observe import RunEnded
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def swallow_at_the_flush(session: Session) -> None:
    session.add(Effect(id=1, name="twice"))
    with suppress(IntegrityError):
        session.flush()


def swallow_at_the_statement(session: Session) -> None:
    session.add(Effect(name="before"))
    session.flush()
    with suppress(IntegrityError):
        session.execute(insert(Effect).values(id=1, name="twice"))


def swallow_in_a_savepoint_that_is_left_open(session: Session) -> None:
    with session.begin_nested(), suppress(IntegrityError):
        session.execute(insert(Effect).values(id=1, name="twice"))


def swallow_after_another_error_was_survived(session: Session) -> None:
    with pytest.raises(DBAPIError), session.begin_nested():
        session.execute(text("SELECT 1/0"))
    swallow_at_the_statement(session)


_SWALLOWING = [
    swallow_at_the_flush,
    swallow_at_the_statement,
    swallow_in_a_savepoint_that_is_left_open,
    swallow_after_another_error_was_survived,
]


@pytest.mark.parametrize("swallow", _SWALLOWING, ids=lambda handler: handler.__name__)
def test_a_handler_that_swallows_a_database_error_fails_with_that_error_and_the_worker_goes_on(
    swallow: Callable[[Session], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def good(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    tasks.task(queue=QUEUE, name="bad")(swallow)
    observer.all("INSERT INTO effect VALUES (1, 'first'); SELECT setval('effect_id_seq', 1)")
    job = enqueue("bad", max_attempts=1)
    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([NewJob("good", {"name": str(n)}, QUEUE) for n in range(50)])
    crew.drain(concurrency=2)

    assert only_error(observer, job).startswith("IntegrityError: (psycopg.errors.UniqueViolation) duplicate key")
    assert sorted(observer.effects()) == sorted(["first", *map(str, range(50))])
    assert sorted(events.outcomes()) == ["dead"] + ["done"] * 50


async def test_a_coroutine_that_swallows_a_database_error_fails_with_that_error(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    async def bad(session: AsyncSession) -> None:
        with suppress(DBAPIError):
            await session.execute(text("SELECT 1/0"))

    job = enqueue("bad", max_attempts=1)
    crew.drain()
    assert "DivisionByZero" in only_error(observer, job)


def test_a_swallowed_lock_timeout_spends_no_attempt(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], engine: Engine, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def wait(session: Session) -> None:
        session.execute(text("SET LOCAL lock_timeout = '20ms'"))
        with suppress(DBAPIError):
            session.execute(text("LOCK TABLE effect"))

    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE effect"))
        enqueue("wait", max_attempts=1)
        crew.start()
        events.wait_for(RunEnded)
    events.wait_for(RunEnded, count=2)
    assert events.outcomes() == ["snoozed", "done"]
    assert events.attempts() == [1, 1]
