"""An application with mapped classes of its own names them once, where it declares its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import JobSession, Models, TaskRegistry, Worker, WorkerMisconfigured
from sa_jobqueue.testing import Committed, assert_enqueued, drain
from tests import own_models
from tests.own_models import MODELS, note

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, sessionmaker

    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """On a database that has the tables of these classes too."""
    own_models.Base.metadata.create_all(engine)
    return engine


@pytest.fixture
def tasks() -> TaskRegistry:
    return own_models.tasks


def test_a_task_is_enqueued_into_the_tables_of_its_registry_and_run_from_there(
    crew: Crew, sessionmaker: sessionmaker[Session], observer: Observer
) -> None:
    with sessionmaker.begin() as session:
        note.using(dedup_key="k").enqueue(session, "from its own table")
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0

    crew.drain()

    assert observer.effects() == ["from its own table"]
    assert observer.all("SELECT scope, key FROM work_done") == [("note", "k")]


@pytest.mark.usefixtures("engine")
async def test_an_async_session_enqueues_there_too(async_sessionmaker: async_sessionmaker[AsyncSession]) -> None:
    async with async_sessionmaker.begin() as session:
        made = await note.using(priority=3).enqueue(session, "a")
        found = await session.get_one(MODELS.job, made.id)
        assert (found.task, found.priority) == ("note", 3)


def test_a_test_that_drains_and_asks_what_is_enqueued_need_not_name_them(session: Session) -> None:
    note.enqueue(session, "a")
    assert [job.args for job in assert_enqueued(session, note)] == [{"name": "a"}]

    assert [job.args for job in drain(session, own_models.tasks).done] == [{"name": "a"}]


def test_a_committed_test_empties_the_tables_of_its_registry(engine: Engine) -> None:
    assert str(Committed(engine, own_models.tasks).cleaned[0]) == "work"


def test_a_worker_of_other_tables_than_its_tasks_are_enqueued_into_refuses_to_start(
    sessionmaker: sessionmaker[Session],
) -> None:
    with pytest.raises(WorkerMisconfigured, match=r"into work.*claim from jobqueue_job;.*TaskRegistry\(models="):
        Worker(own_models.tasks, sessionmaker, models=Models())


def test_a_worker_may_be_told_the_tables_of_its_tasks_once_more(sessionmaker: sessionmaker[Session]) -> None:
    Worker(own_models.tasks, sessionmaker, models=MODELS)


def test_a_worker_may_be_told_what_its_registry_was_not(
    sessionmaker: sessionmaker[Session], observer: Observer
) -> None:
    untold = TaskRegistry()
    untold.task(queue="own")(note.function)
    with sessionmaker.begin() as session:
        JobSession(session, models=MODELS).enqueue("note", {"name": "by name"}, queue="own")

    Worker(untold, sessionmaker, models=MODELS).run(until_empty=True)

    assert observer.effects() == ["by name"]
