"""Handlers at REPEATABLE READ and SERIALIZABLE: conflicts are nobody's fault, and a lease that cannot grow is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, func, select, text
from sqlalchemy.orm import sessionmaker as session_factory

from sa_jobqueue import Backoff, JobSession, NewJob, current_job
from sa_jobqueue.observe import Outage, RunEnded
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


@pytest.fixture(params=["REPEATABLE READ", "SERIALIZABLE"])
def isolated(request: pytest.FixtureRequest, engine: Engine) -> Iterator[sessionmaker[Session]]:
    """Sessions of an application whose engine is set to a level above READ COMMITTED."""
    isolated = create_engine(engine.url, isolation_level=request.param, pool_size=8)
    yield session_factory(isolated)
    isolated.dispose()


def test_four_workers_do_a_hundred_jobs_once_and_spend_no_attempt_on_conflicts(
    tasks: TaskRegistry, crew: Crew, isolated: sessionmaker[Session], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def count(session: Session) -> None:
        session.scalar(select(func.count()).select_from(Effect))  # under SERIALIZABLE: reads what the others write
        session.add(Effect(name=str(current_job().id)))

    with isolated.begin() as session:
        jobs = JobSession(session).enqueue_many([NewJob("count", queue=QUEUE)] * 100)
    for _ in range(4):
        crew.start(sessionmaker=isolated, concurrency=2)
    wait_until(lambda: events.outcomes().count("done") == 100, timeout=60, what="a hundred jobs to be done")

    assert sorted(map(int, observer.effects())) == [job.id for job in jobs]
    assert set(events.attempts()) == {1}
    assert set(events.outcomes()) <= {"done", "snoozed", "released"}
    assert events.of(Outage) == []


def test_a_run_of_several_heartbeats_is_done_at_its_first_try(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    isolated: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    old = "SELECT statement_timestamp() - claimed_at > interval '1.8 seconds' FROM jobqueue_job"

    @tasks.task(queue=QUEUE, visibility_timeout=3)
    def hold(session: Session) -> None:
        session.add(Effect(name="done"))
        session.flush()
        wait_until(lambda: observer.scalar(old), what="the time of the first heartbeat to pass")

    enqueue("hold")
    crew.start(sessionmaker=isolated)
    events.wait_for(RunEnded)
    assert (events.outcomes(), observer.effects()) == (["done"], ["done"])


def test_a_run_that_outlives_its_lease_fails_with_the_name_of_the_remedy(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    isolated: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=1.5, backoff=Backoff(base=0.05, jitter=0))
    def too_long(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        session.execute(text("SELECT pg_sleep(1000)"))

    job = enqueue("too_long", max_attempts=2)
    crew.drain(sessionmaker=isolated)
    assert events.attempts() == [1, 2]
    assert events.outcomes() == ["retried", "dead"]
    (dead,) = observer.dead(job.id)
    assert all("Raise visibility_timeout" in entry["error"] for entry in dead.errors)
    assert observer.effects() == []
