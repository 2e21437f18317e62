"""A job that always fails: it waits longer each time, then it is a dead letter, and nobody waits for it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sa_jobqueue import Backoff
from sa_jobqueue.observe import RunEnded
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def _declare(tasks: TaskRegistry, base: float = 0.1, jitter: float = 0.05) -> None:
    declare = tasks.task(queue=QUEUE, backoff=Backoff(base=base, jitter=jitter, cap=60))

    @declare
    def poison(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        message = "always"
        raise ValueError(message)

    @declare
    def behind(session: Session, n: int) -> None:
        session.add(Effect(name=str(n)))


def test_the_backoff_grows_with_jitter_over_five_failures(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    _declare(tasks)
    enqueue("poison", max_attempts=5)
    crew.drain()

    waits = [event.retry_in.total_seconds() for event in events.of(RunEnded) if event.retry_in is not None]
    exponential = [0.1, 0.2, 0.4, 0.8]
    jitter = [wait - least for wait, least in zip(waits, exponential, strict=True)]
    assert all(0 <= part <= 0.05 for part in jitter)
    assert len({round(part, 6) for part in jitter}) == 4


def test_the_database_keeps_a_failed_job_back_for_as_long_as_its_backoff_says(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    _declare(tasks)
    job = enqueue("poison", max_attempts=5)
    crew.drain()

    waits = [event.retry_in for event in events.of(RunEnded) if event.retry_in is not None]
    failed_at = [datetime.fromisoformat(error["at"]) for error in observer.dead(job.id)[0].errors]
    started_at = [event.job.claimed_at for event in events.of(RunEnded)]
    assert len(failed_at) == len(started_at) == 5
    assert all(start - failure >= wait for failure, start, wait in zip(failed_at, started_at[1:], waits, strict=False))


def test_after_five_failures_the_job_is_a_dead_letter_with_its_history(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    _declare(tasks)
    job = enqueue("poison", max_attempts=5)
    crew.drain()

    (dead,) = observer.dead(job.id)
    assert (dead.reason, dead.attempt) == ("failed", 5)
    assert [error["attempt"] for error in dead.errors] == [1, 2, 3, 4, 5]
    assert {error["error"] for error in dead.errors} == {"ValueError: always"}
    assert (observer.job(job.id), observer.effects()) == (None, [])


def test_the_jobs_behind_a_failing_one_run_while_it_waits(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    _declare(tasks, base=30)
    job = enqueue("poison", max_attempts=5)
    for n in range(10):
        enqueue("behind", {"n": n})
    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=11)

    assert events.outcomes() == ["retried"] + ["done"] * 10
    assert observer.effects() == [str(n) for n in range(10)]
    assert observer.state(job.id) == "scheduled"
