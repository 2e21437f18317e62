"""``run(until_empty=True)``: what a drain waits for, and what it does not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue import Backoff, JobSession, current_job
from sa_jobqueue.observe import RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def declare(tasks: TaskRegistry) -> None:
    @tasks.task(queue=QUEUE, backoff=Backoff(base=0.3, jitter=0, cap=1))
    def mark(session: Session, failures: int = 0) -> None:
        if current_job().attempt <= failures:
            raise ValueError
        session.add(Effect(name=str(current_job().attempt)))


def test_a_drain_of_an_empty_queue_ends(tasks: TaskRegistry, crew: Crew, events: Events) -> None:
    declare(tasks)
    crew.drain()
    assert events.of(RunStarted) == []


def test_a_drain_waits_for_the_retries_that_it_has_caused_itself(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    declare(tasks)
    enqueue("mark", {"failures": 2})
    crew.drain()
    assert observer.effects() == ["3"]


def test_a_drain_does_not_wait_for_a_job_that_is_scheduled_for_next_week(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    declare(tasks)
    later = enqueue("mark", delay=timedelta(days=7))
    enqueue("mark")
    crew.drain()
    assert (observer.effects(), observer.state(later.id)) == (["1"], "scheduled")


def test_a_drain_takes_a_job_that_has_come_due(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    declare(tasks)
    due = enqueue("mark", delay=timedelta(days=7))
    observer.make_due(due.id)
    crew.drain()
    assert observer.effects() == ["1"]


def test_a_drain_waits_for_a_job_that_somebody_else_has_claimed_and_takes_it_over_when_its_lease_expires(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
) -> None:
    declare(tasks)
    enqueue("mark")
    with sessionmaker.begin() as session:
        assert JobSession(session).claim(QUEUE, visibility_timeout=1, worker="somebody else")
    crew.drain()
    assert observer.effects() == ["2"]


def test_a_drain_waits_neither_for_other_queues_nor_for_tasks_that_it_does_not_know(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    declare(tasks)
    elsewhere, unknown = enqueue("mark", queue="elsewhere"), enqueue("unknown")
    crew.drain()
    assert (observer.state(elsewhere.id), observer.state(unknown.id)) == ("queued", "queued")


def test_a_drain_runs_what_its_own_handlers_enqueue(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def count_down(session: Session, n: int) -> None:
        session.add(Effect(name=str(n)))
        if n:
            JobSession(session).enqueue("count_down", {"n": n - 1}, queue=QUEUE)

    enqueue("count_down", {"n": 3})
    crew.drain()
    assert observer.effects() == ["3", "2", "1", "0"]


def test_a_drain_of_several_queues_serves_them_all_though_one_is_never_empty_enough_to_share_a_slot(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    declare(tasks)
    for _ in range(20):
        enqueue("mark", queue="busy")
    quiet = enqueue("mark", queue="quiet")
    crew.drain(queues=["busy", "quiet"], concurrency=1)
    order = [event.job.id for event in events.of(RunStarted)]
    assert order.index(quiet.id) <= 2
