"""Coroutines that are cancelled anywhere: no connection leaks, and every job is done or runnable, not half of each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.util import await_only

from sa_jobqueue import AsyncJobSession
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


class Boundaries:
    """Counts what an engine does, and cancels a task at the ``at``-th boundary: before it is done, or after."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.at, self.passed = 0, 0
        self.task: asyncio.Task[Any] | None = None
        dialect: Any = engine.sync_engine.dialect
        for name in ("do_execute", "do_commit", "do_rollback"):
            setattr(dialect, name, self._around(getattr(dialect, name)))

    def _around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._pass()
            answer = real(*arguments)
            self._pass()
            return answer

        return call

    def _pass(self) -> None:
        self.passed += 1
        if self.task is not None and self.passed == self.at:
            self.task.cancel()
            await_only(asyncio.sleep(0))


async def _serve_one(engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        jobs = AsyncJobSession(session)
        job = await jobs.claim(QUEUE)
        if job is not None:
            session.add(Effect(name=str(job.id)))
            await session.flush()
            await jobs.ack(job)


async def _serve_and_cancel_at_every_boundary(engine: AsyncEngine) -> int:
    boundaries, cancelled = Boundaries(engine), 0
    while boundaries.passed >= boundaries.at:
        boundaries.at, boundaries.passed = boundaries.at + 1, 0
        boundaries.task = asyncio.create_task(_serve_one(engine))
        (ending,) = await asyncio.gather(boundaries.task, return_exceptions=True)
        cancelled += isinstance(ending, asyncio.CancelledError)
        assert engine.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # of a QueuePool
    boundaries.task = None
    await asyncio.wait_for(_serve_one(engine), 10)
    await engine.dispose()
    return cancelled


def test_a_service_that_is_cancelled_at_every_boundary_leaks_no_connection_and_halves_no_job(
    enqueue: Callable[..., EnqueuedJob], engine: Engine, observer: Observer
) -> None:
    jobs = [enqueue("t").id for _ in range(30)]
    cancelled = asyncio.run(
        _serve_and_cancel_at_every_boundary(create_async_engine(engine.url, pool_size=1, max_overflow=0))
    )
    done = {int(name) for name in observer.effects()}
    queued = {row.id for row in observer.all("SELECT id FROM jobqueue_job WHERE status = 'queued' AND attempt = 0")}
    assert cancelled >= 8
    assert (done | queued, done & queued) == (set(jobs), set())


@pytest.mark.parametrize("core", [False, True], ids=["session", "connection"])
def test_a_handler_that_is_cancelled_while_its_session_rolls_back_keeps_the_connection_of_its_pool(
    core: bool,  # noqa: FBT001 - a parameter of the test
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    events: Events,
) -> None:
    handlers: list[asyncio.Task[Any] | None] = []
    backends: list[int | None] = []

    @tasks.task(queue=QUEUE, core=core)
    async def fail(session: AsyncSession | AsyncConnection) -> None:
        backends.append(await session.scalar(text("SELECT pg_backend_pid()")))
        handlers.append(asyncio.current_task())
        raise ValueError

    own = create_async_engine(engine.url, pool_size=1, max_overflow=0)
    dialect: Any = own.sync_engine.dialect
    real = dialect.do_rollback

    def do_rollback(connection: Any) -> None:
        if handlers and handlers[-1] is not None:
            handlers[-1].cancel()
            await_only(asyncio.sleep(0))
        real(connection)

    dialect.do_rollback = do_rollback
    for _ in range(5):
        enqueue("fail", max_attempts=1)
    crew.drain(async_sessionmaker=async_sessionmaker(own), concurrency=1)
    assert events.outcomes() == ["dead"] * 5
    assert len(set(backends)) == 1
