"""Handlers as the application writes them: functions and coroutine functions, each in a session of its own."""

from __future__ import annotations

import asyncio
import threading
from threading import Barrier
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.orm import scoped_session

from sa_jobqueue import JobSession, NewJob, current_job
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

_REMEMBER_BEATS = """
CREATE TABLE beat (pid int);
CREATE FUNCTION beat() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO beat VALUES (pg_backend_pid()); RETURN NULL; END $$;
CREATE TRIGGER beat AFTER UPDATE ON jobqueue_job FOR EACH ROW
    WHEN (OLD.status = 'claimed' AND NEW.status = 'claimed') EXECUTE FUNCTION beat()
"""


def test_one_worker_runs_functions_and_coroutine_functions(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def sync(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    @tasks.task(queue=QUEUE)
    async def later(session: AsyncSession, name: str) -> None:
        session.add(Effect(name=name))
        await session.flush()

    for n in range(5):
        enqueue("sync", {"name": f"s{n}"})
        enqueue("later", {"name": f"a{n}"})
    crew.drain()
    assert sorted(observer.effects()) == sorted(f"{kind}{n}" for kind in "as" for n in range(5))


def test_a_handler_sees_its_own_job_also_from_a_helper_thread(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob]
) -> None:
    seen: list[int] = []

    @tasks.task(queue=QUEUE)
    def sync(_session: Session) -> None:
        seen.append(current_job().id)

    @tasks.task(queue=QUEUE)
    async def later(_session: AsyncSession) -> None:
        seen.append((await asyncio.to_thread(current_job)).id)

    ids = [enqueue("sync").id, enqueue("later").id]
    crew.drain()
    assert sorted(seen) == ids


def test_as_many_handlers_run_at_the_same_time_as_the_worker_has_slots(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    together = Barrier(3)

    @tasks.task(queue=QUEUE)
    def meet(_session: Session) -> None:
        together.wait(20)

    for _ in range(6):
        enqueue("meet")
    crew.drain(concurrency=3)
    assert events.outcomes() == ["done"] * 6


def test_handlers_with_a_scoped_session_share_none_and_the_registry_is_cleared_after_each_run(
    tasks: TaskRegistry, crew: Crew, sessionmaker: sessionmaker[Session], events: Events
) -> None:
    scoped, inside, clashes = scoped_session(sessionmaker), set[int](), list[str]()

    @tasks.task(queue=QUEUE)
    def use(session: Session, n: int) -> None:
        if session is not scoped() or id(session) in inside or session.info.get("used"):
            clashes.append(f"job {n}")
        inside.add(id(session))
        session.info["used"] = True
        session.add(Effect(name=str(n)))
        session.flush()
        inside.discard(id(session))

    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([NewJob("use", {"n": n}, QUEUE) for n in range(100)])
    crew.drain(sessionmaker=scoped, concurrency=8)
    assert clashes == []
    assert events.outcomes() == ["done"] * 100


def test_no_heartbeat_travels_on_a_handlers_connection(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    handlers: set[int] = set()
    beaten = threading.Event()

    @tasks.task(queue=QUEUE, visibility_timeout=0.6)
    def hold(session: Session) -> None:
        handlers.add(session.scalars(text("SELECT pg_backend_pid()")).one())
        assert beaten.wait(20)

    observer.all(_REMEMBER_BEATS)
    for _ in range(4):
        enqueue("hold")
    crew.start(concurrency=4)
    wait_until(lambda: observer.scalar("SELECT count(*) FROM beat") > 8, what="a few heartbeats")
    beaten.set()
    crew.drain()
    assert len(handlers) == 4
    assert handlers.isdisjoint(row.pid for row in observer.all("SELECT DISTINCT pid FROM beat"))
