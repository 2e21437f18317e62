"""A Core job's connection is kept for the next job of the same thread or task, for a moment, where nobody can tell."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, event, text

from sa_jobqueue.observe import RunEnded
from sa_jobqueue.worker import hand
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.core import enqueue_three, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.proofs.crew import Crew, Events
    from tests.worker.core import Both

    Declare = Callable[..., None]
    Enqueue = Callable[..., EnqueuedJob]


@pytest.fixture(autouse=True)
def long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a machine under load keeps connections too."""
    monkeypatch.setattr(hand, "_SPAN", 60.0)


@pytest.fixture
def seen(declare_core: Declare, enqueue: Enqueue) -> list[Any]:
    """What jobs got from the pool, one after the other; there are nine, and all but the first are claimed together."""

    def look(connection: Connection, name: str) -> None:
        write(connection, name)
        handed_out.append(connection.connection)

    handed_out: list[Any] = []
    declare_core(look)
    for _ in range(3):
        enqueue_three(enqueue, "look")
    return handed_out


def kept(handed_out: list[Any]) -> int:
    """How many jobs had the connection of the one before without the pool."""
    assert len(handed_out) == 9
    return sum(one is following for one, following in itertools.pairwise(handed_out))


def test_jobs_that_follow_each_other_share_a_connection(
    seen: list[Any], crew: Crew, both: Both, events: Events
) -> None:
    crew.drain(concurrency=1, **both.makers)
    assert events.outcomes() == ["done"] * 9
    assert kept(seen) > 0


def test_a_connection_goes_back_when_its_time_is_over(
    seen: list[Any], crew: Crew, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand, "_SPAN", 0.0)
    crew.drain(concurrency=1, **both.makers)
    assert kept(seen) == 0


@pytest.mark.parametrize("name", ["checkout", "checkin", "reset", "engine_connect"])
def test_a_connection_goes_back_after_each_job_where_somebody_is_told_of_it(
    name: str, seen: list[Any], crew: Crew, both: Both
) -> None:
    def hear(*_: object) -> None:
        told.append(name)

    told: list[str] = []
    for each in both.each:
        event.listen(each, name, hear)
    crew.drain(concurrency=1, **both.makers)
    assert kept(seen) == 0
    assert len(told) >= 9


def test_a_connection_goes_back_after_each_job_where_the_pool_has_no_more_than_are_needed(
    seen: list[Any], crew: Crew, make_both: Callable[..., Both]
) -> None:
    crew.drain(concurrency=1, **make_both(pool_size=1, max_overflow=0).makers)
    assert kept(seen) == 0


def test_a_connection_whose_level_a_handler_has_changed_is_put_right_before_the_next_job(
    declare_core: Declare, enqueue: Enqueue, crew: Crew, both: Both, events: Events
) -> None:
    def switch(connection: Connection, name: str) -> None:
        if name == "second":
            connection.execution_options(isolation_level="SERIALIZABLE")
        levels.append((name, connection.scalar(text("SHOW transaction_isolation"))))

    levels: list[tuple[str, str]] = []
    declare_core(switch)
    for _ in range(3):
        enqueue_three(enqueue, "switch")
    crew.drain(concurrency=1, **both.makers)
    assert events.outcomes() == ["done"] * 9
    assert set(levels) == {("first", "read committed"), ("second", "serializable"), ("third", "read committed")}


def test_a_connection_that_a_handler_has_taken_from_its_pool_for_good_is_not_kept(engine: Engine) -> None:
    held = hand.Hand()
    held.opened(may_keep=True)
    with engine.connect() as connection:
        connection.detach()
        held.keep(connection.connection)
    assert held.take() is None


def test_a_connection_is_not_kept_because_an_earlier_one_might_have_been(engine: Engine) -> None:
    held = hand.Hand()
    held.opened(may_keep=True)
    held.opened(may_keep=False)
    with engine.connect() as connection:
        held.keep(connection.connection)
    assert held.take() is None


def test_a_thread_with_a_kept_connection_gives_it_back_before_a_session_takes_its_own(
    tasks: TaskRegistry, enqueue: Enqueue, crew: Crew, both: Both
) -> None:
    @tasks.task(queue=QUEUE, core=True)
    def on_connection(connection: Connection) -> None:
        write(connection, "it")

    @tasks.task(queue=QUEUE)
    def in_session(session: Session) -> None:
        session.connection()
        out.append(both.sync.pool.checkedout())  # type: ignore[attr-defined]  # of a QueuePool

    out: list[int] = []
    for _ in range(4):
        enqueue("on_connection")
        enqueue("in_session")
    crew.drain(concurrency=1, sessionmaker=both.makers["sessionmaker"])
    assert out == [1] * 4


def test_a_coroutine_gives_a_kept_connection_back_before_a_session_takes_its_own(
    tasks: TaskRegistry, enqueue: Enqueue, crew: Crew, both: Both
) -> None:
    @tasks.task(queue=QUEUE, core=True)
    async def on_connection(connection: AsyncConnection) -> None:
        await connection.run_sync(write, "it")

    @tasks.task(queue=QUEUE)
    async def in_session(session: AsyncSession) -> None:
        await session.connection()
        out.append(both.later.sync_engine.pool.checkedout())  # type: ignore[attr-defined]  # of a QueuePool

    out: list[int] = []
    for _ in range(4):
        enqueue("on_connection")
        enqueue("in_session")
    crew.drain(concurrency=1, **both.makers)
    assert out == [1] * 4


def test_a_connection_goes_back_when_no_job_follows(seen: list[Any], crew: Crew, both: Both, events: Events) -> None:
    crew.start(concurrency=1, **both.makers)
    events.wait_for(RunEnded, count=9)
    pools: list[Any] = [each.pool for each in both.each]
    wait_until(lambda: not any(pool.checkedout() for pool in pools), what="the kept connection to come back")
    assert kept(seen) > 0
