"""Timeouts of the server, in handlers and in the worker's own statements: no attempt is spent, no log is flooded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from sa_jobqueue.observe import Outage, Recovered, RunEnded, log_event
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until
from tests.worker.counting import counting
from tests.worker.locks import ADVISORY_LOCK, LOCK_OF_ALL_JOBS, held

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
def test_a_handler_that_runs_into_a_timeout_of_the_server_runs_again_and_spends_no_attempt(
    setting: str,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def take_lock(session: Session) -> None:
        session.execute(text(f"SET LOCAL {setting} = '100ms'"))
        session.execute(text(ADVISORY_LOCK))
        session.add(Effect(name="done"))

    enqueue("take_lock")
    with held(engine, ADVISORY_LOCK):
        crew.start()
        events.wait_for(RunEnded)
    events.wait_for(RunEnded, count=2)
    assert (events.outcomes()[0], events.outcomes()[-1]) == ("snoozed", "done")
    assert set(events.attempts()) == {1}
    assert observer.effects() == ["done"]


@pytest.mark.parametrize(
    ("lock_timeout", "sqlstate"), [("100ms", "55P03"), ("0", None)], ids=["lock_timeout", "control_timeout"]
)
def test_a_worker_whose_own_statements_run_into_a_timeout_goes_on_and_says_so_once(
    lock_timeout: str,
    sqlstate: str | None,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sa_jobqueue")

    @tasks.task(queue=QUEUE)
    def mark(session: Session) -> None:
        session.add(Effect(name="done"))

    observer.all(f"ALTER DATABASE \"{engine.url.database}\" SET lock_timeout = '{lock_timeout}'")
    enqueue("mark")
    with held(engine, LOCK_OF_ALL_JOBS), counting("handle_error") as failures:
        crew.start(subscribers=[events, log_event], control_timeout=0.5)
        wait_until(lambda: len(failures) > 3, what="several failures")
    events.wait_for(RunEnded)
    events.wait_for(Recovered)

    assert (events.outcomes(), observer.effects()) == (["done"], ["done"])
    assert [outage.error.orig.sqlstate for outage in events.of(Outage)] == [sqlstate]
    assert len(events.of(Recovered)) == 1
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
