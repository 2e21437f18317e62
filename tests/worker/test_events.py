"""What a worker tells its subscribers and its log, and what it never tells."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import Backoff, RejectJob
from sa_jobqueue.observe import (
    Event,
    HeartbeatFailed,
    LeaseWasLost,
    Listening,
    Outage,
    RunEnded,
    RunStarted,
    RunUnrecorded,
    WorkerStarted,
    WorkerStopped,
    log_event,
)
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

SECRET = "S3CRET"  # noqa: S105 - the word that must not turn up


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "sa_jobqueue")
    return caplog


def declare(tasks: TaskRegistry) -> None:
    declare = tasks.task(queue=QUEUE, backoff=Backoff(base=0.01, jitter=0, cap=1))

    @declare
    def succeed(session: Session, password: str) -> None:
        session.add(Effect(name=password))

    @declare
    def fail(session: Session, password: str) -> None:
        session.add(Effect(id=password))
        session.flush()

    @declare
    def reject(_session: Session, password: str) -> None:
        raise RejectJob(password)


def test_no_argument_of_a_job_reaches_the_log_at_any_level(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    log: pytest.LogCaptureFixture,
) -> None:
    declare(tasks)
    dead = [enqueue(task, {"password": SECRET}, max_attempts=2) for task in ("fail", "reject")]
    dead.append(enqueue("succeed", {"unknown": SECRET}, max_attempts=1))
    enqueue("succeed", {"password": SECRET}, headers={"token": SECRET}, dedup_key="once")
    enqueue("succeed", {"password": SECRET}, dedup_key="once")
    crew.drain(subscribers=[log_event], concurrency=1)

    assert SECRET in observer.effects()
    assert all(observer.dead(job.id) for job in dead)
    assert len(log.records) > 10
    assert SECRET not in log.text


@pytest.mark.parametrize("kind", [LeaseWasLost, RunUnrecorded, RunEnded, RunStarted, Outage, HeartbeatFailed])
def test_an_event_is_logged_with_neither_arguments_nor_error_texts(
    kind: type[Event],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    events: Events,
    log: pytest.LogCaptureFixture,
) -> None:
    declare(tasks)
    enqueue("succeed", {"password": SECRET})
    crew.drain()
    job = events.of(RunStarted)[0].job
    given = {"worker": "w", "job": job, "outcome": "dead", "seconds": 1, "error": ValueError(SECRET)}
    log_event(kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given}))
    assert len(log.records) == 1
    assert SECRET not in log.text


def test_a_subscriber_that_raises_is_reported_and_changes_nothing(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events, log: pytest.LogCaptureFixture
) -> None:
    def broken(_event: Event) -> None:
        raise ValueError

    declare(tasks)
    enqueue("succeed", {"password": "x"})
    crew.drain(subscribers=[broken, events], name="w")
    assert events.outcomes() == ["done"]
    assert "w: a subscriber failed on RunEnded" in log.messages


def test_events_tell_the_story_of_a_worker_in_its_order(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    declare(tasks)
    enqueue("succeed", {"password": "x"})
    crew.drain(name="w")
    story = [type(event) for event in events.all if not isinstance(event, Listening)]
    assert story == [WorkerStarted, RunStarted, RunEnded, WorkerStopped]
    assert {event.worker for event in events.all} == {"w"}
