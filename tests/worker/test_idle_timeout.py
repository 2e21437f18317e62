"""A transaction in which nothing happens for too long is ended by the server, and that is the handler's own fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

_SHOW = text("SHOW idle_in_transaction_session_timeout")


@pytest.mark.parametrize("where", ["in the database", "in the worker"])
def test_a_handler_that_idles_too_long_in_its_transaction_fails_with_the_name_of_the_setting(
    where: str,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def idle(session: Session) -> None:
        session.add(Effect(name="lost"))
        session.flush()
        pid = session.scalar(text("SELECT pg_backend_pid()"))
        alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"
        wait_until(lambda: observer.scalar(alive, pid=pid) == 0, what="the server to end the session")
        session.add(Effect(name="never"))

    if where == "in the database":
        name = engine.url.database
        observer.all(f"ALTER DATABASE \"{name}\" SET idle_in_transaction_session_timeout = '200ms'")
        engine.dispose()
    job = enqueue("idle", max_attempts=2)
    crew.drain(idle_timeout=0.2 if where == "in the worker" else 300)

    (dead,) = observer.dead(job.id)
    assert all("idle-in-transaction timeout" in entry["error"] for entry in dead.errors)
    assert events.attempts() == [1, 2]
    assert observer.effects() == []


def test_the_connection_of_a_handler_carries_the_workers_timeout_even_if_its_first_transaction_is_rolled_back(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob]
) -> None:
    shown: list[str | None] = []

    @tasks.task(queue=QUEUE)
    def show(session: Session) -> None:
        shown.append(session.scalar(_SHOW))
        session.rollback()
        shown.append(session.scalar(_SHOW))

    enqueue("show")
    crew.drain(idle_timeout=42)
    assert shown == ["42s", "42s"]


def test_a_handler_whose_session_is_known_to_be_over_still_hears_from_the_server_why(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    expiries: set[object] = set()

    def beaten() -> bool:
        expiries.add(observer.scalar("SELECT visible_at FROM jobqueue_job"))
        return len(expiries) > 4

    @tasks.task(queue=QUEUE, visibility_timeout=2)
    def idle(session: Session) -> None:
        session.execute(_SHOW)
        wait_until(beaten, what="more beats than the keeper needs to see that the session is over")
        session.execute(_SHOW)

    job = enqueue("idle", max_attempts=1)
    crew.drain(idle_timeout=1.2)
    assert "idle-in-transaction timeout" in only_error(observer, job)
