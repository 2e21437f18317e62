"""Fixtures of the proofs and of the worker's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue import EnqueuedJob, JobSession, TaskRegistry
from tests.behaviour.business import Base
from tests.behaviour.observer import Observer
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew, Events
from tests.proofs.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, sessionmaker

__all__ = ["crew", "engine", "enqueue", "events", "observer", "start_process", "tasks"]


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """The suite's engine, on a database that has the tables of the business too."""
    Base.metadata.create_all(engine)
    return engine


@pytest.fixture
def observer(engine: Engine) -> Observer:
    return Observer(engine)


@pytest.fixture
def enqueue(sessionmaker: sessionmaker[Session]) -> Callable[..., EnqueuedJob]:
    """A function that commits one job: the task's name, its arguments, and the options of an enqueue."""

    def commit(task: str, args: dict[str, Any] | None = None, **options: Any) -> EnqueuedJob:
        with sessionmaker.begin() as session:
            return JobSession(session).enqueue(task, args, **({"queue": QUEUE} | options))

    return commit


@pytest.fixture
def start_process(engine: Engine) -> Iterator[Callable[..., WorkerProcess]]:
    """A function that starts one more worker process; it has begun to poll when the function returns."""
    started: list[WorkerProcess] = []
    url = engine.url.render_as_string(hide_password=False)

    def start(**settings: Any) -> WorkerProcess:
        started.append(WorkerProcess(url, **settings))
        started[-1].expect("WorkerStarted")
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def tasks() -> TaskRegistry:
    return TaskRegistry()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def crew(tasks: TaskRegistry, engine: Engine, events: Events) -> Iterator[Crew]:
    """Workers for the handlers of ``tasks``, on threads."""
    crew = Crew(tasks, engine, events)
    yield crew
    crew.close()
