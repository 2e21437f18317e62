"""Handlers that bend the fence on purpose: no commit without a live token, no row left behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import JobSession, LeaseLost, current_job
from sa_jobqueue.observe import LeaseWasLost
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

    Bend = Callable[[Session], object]
    Declare = Callable[[Bend], None]


def commits_half_way(session: Session) -> None:
    session.commit()


def acks_in_a_savepoint_that_is_rolled_back(session: Session) -> None:
    savepoint = session.begin_nested()
    JobSession(session).ack(current_job())
    savepoint.rollback()


def acks_in_a_savepoint_of_the_connection_that_is_rolled_back(session: Session) -> None:
    savepoint = session.connection().begin_nested()
    JobSession(session).ack(current_job())
    savepoint.rollback()


def claims_in_a_savepoint_that_is_rolled_back(session: Session) -> None:
    savepoint = session.begin_nested()
    JobSession(session).claim("other")
    savepoint.rollback()


def swallows_a_database_error(session: Session) -> None:
    with suppress(DBAPIError):
        session.execute(text("SELECT 1/0"))


def closes_its_session(session: Session) -> None:
    session.close()


def _raising(error: type[BaseException]) -> Any:
    def bend(_session: Session) -> None:
        raise error

    bend.__name__ = f"raises_{error.__name__}"
    return bend


_BENDS = [
    (commits_half_way, "CommitRefused: commit refused: the handler commits before its job is acknowledged"),
    (acks_in_a_savepoint_that_is_rolled_back, "was made in a savepoint that was rolled back"),
    (acks_in_a_savepoint_of_the_connection_that_is_rolled_back, "was made in a savepoint that was rolled back"),
    (claims_in_a_savepoint_that_is_rolled_back, "was made in a savepoint that was rolled back"),
    (swallows_a_database_error, "DivisionByZero"),
    (closes_its_session, "the handler closed its session"),
    *((_raising(error), error.__name__) for error in (SystemExit, KeyboardInterrupt, GeneratorExit)),
    (_raising(asyncio.CancelledError), "CancelledError"),
]


@pytest.fixture(params=["function", "coroutine"])
def declare(request: pytest.FixtureRequest, tasks: TaskRegistry) -> Declare:
    """A function that makes a task ``bent`` of a bend: it writes an effect, and then does that."""

    def function(session: Session) -> None:
        session.add(Effect(name="bent"))
        session.flush()
        bends[0](session)

    async def coroutine(session: AsyncSession) -> None:
        await session.run_sync(function)

    bends: list[Bend] = []
    tasks.task(queue=QUEUE, name="bent", max_attempts=1)(locals()[request.param])
    return bends.append


@pytest.mark.parametrize(("bend", "error"), _BENDS, ids=[bend.__name__ for bend, _ in _BENDS])
def test_a_run_that_bends_the_fence_fails_leaves_nothing_and_the_worker_goes_on(
    bend: Bend,
    error: str,
    declare: Declare,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def straight(session: Session) -> None:
        session.add(Effect(name="straight"))

    declare(bend)
    waiting = enqueue("straight", queue="other")
    bent = enqueue("bent", max_attempts=1)
    enqueue("straight")
    crew.drain(concurrency=1, queues=[QUEUE])
    assert error in only_error(observer, bent)
    assert (events.outcomes(), observer.effects()) == (["dead", "done"], ["straight"])
    assert observer.all("SELECT id, status FROM jobqueue_job") == [(waiting.id, "queued")]


def test_a_handler_that_swallows_its_lost_lease_commits_nothing(
    declare: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    def swallow(session: Session) -> None:
        with sessionmaker.begin() as operator:
            JobSession(operator).cancel(current_job().id)
        with suppress(LeaseLost):
            JobSession(session).ack(current_job())

    declare(swallow)
    job = enqueue("bent")
    crew.drain()
    assert [event.job.id for event in events.of(LeaseWasLost)] == [job.id]
    assert (observer.effects(), observer.dead(job.id)[0].reason) == ([], "cancelled")
