"""Batch tasks: one call of the handler, one session and one commit for up to so many jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import InvalidArgument, JobQueueError, current_job
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import ClaimedJob, EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


@pytest.fixture(params=["function", "coroutine"])
def calls(request: pytest.FixtureRequest, tasks: TaskRegistry) -> list[list[str]]:
    """A batch task ``mark``, as a function or coroutine, of at most 5 jobs; the names of each call."""
    called: list[list[str]] = []
    declare = tasks.task(name="mark", queue=QUEUE, batch=5)

    def work(jobs: list[ClaimedJob]) -> list[Effect]:
        names = [job.args["name"] for job in jobs]
        called.append(names)
        if "bad" in names:
            raise ValueError(names)
        return [Effect(name=name) for name in names]

    def mark(session: Session, jobs: list[ClaimedJob]) -> None:
        session.add_all(work(jobs))

    async def amark(session: AsyncSession, jobs: list[ClaimedJob]) -> None:
        session.add_all(work(jobs))

    declare(mark if request.param == "function" else amark)
    return called


def test_a_batch_is_one_call_and_one_commit_and_no_larger_than_it_was_declared(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    for name in "abcdefg":
        enqueue("mark", {"name": name})
    crew.drain(concurrency=2)
    assert sorted(calls) == [list("abcde"), list("fg")]
    assert sorted(observer.effects()) == list("abcdefg")
    assert observer.scalar("SELECT count(DISTINCT xmin::text) FROM effect") == 2
    assert events.outcomes() == ["done"] * 7


def test_a_batch_that_fails_is_called_again_with_each_job_alone(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    jobs = [enqueue("mark", {"name": name}, max_attempts=1) for name in ("a", "bad", "b")]
    crew.drain(concurrency=1)
    assert calls == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert observer.effects() == ["a", "b"]
    assert observer.dead(jobs[1].id)[0].reason == "failed"


def test_a_job_whose_effect_exists_is_no_part_of_a_batch(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue("mark", {"name": "a"}, dedup_key="known")
    crew.drain(concurrency=1)
    for name, key in (("again", "known"), ("b", None), ("c", None)):
        enqueue("mark", {"name": name}, dedup_key=key)
    crew.drain(concurrency=1)
    assert calls == [["a"], ["b", "c"]]
    assert observer.effects() == ["a", "b", "c"]
    assert sorted(events.outcomes()) == ["done", "done", "done", "duplicate"]


def test_no_job_of_a_batch_is_the_current_one(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob]
) -> None:
    seen: list[str] = []

    @tasks.task(queue=QUEUE, batch=5)
    def mark(_session: Session, jobs: list[ClaimedJob]) -> None:
        with pytest.raises(JobQueueError, match="outside a running job"):
            current_job()
        seen.extend(job.args["name"] for job in jobs)

    for name in ("a", "b"):
        enqueue("mark", {"name": name})
    crew.drain()
    assert sorted(seen) == ["a", "b"]


def test_a_batch_task_enqueues_by_names_and_has_a_key_of_them(
    tasks: TaskRegistry, sessionmaker: sessionmaker[Session]
) -> None:
    @tasks.task(queue=QUEUE, batch=5, dedup_key=lambda order: f"order:{order}")
    def mark(_session: Session, jobs: list[ClaimedJob]) -> None:
        """Never called."""

    new = mark.new_job(order=7)
    assert (new.args, new.dedup_key) == ({"order": 7}, "order:7")
    with sessionmaker() as session, pytest.raises(InvalidArgument, match="name each argument"):
        mark.enqueue(session, 7)


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 1_001}, {"group_commit": True}, {"group_commit": 2.5}])
def test_a_size_that_is_none_is_refused(options: dict[str, int], tasks: TaskRegistry) -> None:
    with pytest.raises(InvalidArgument, match="must be an int between 1 and 1000"):
        tasks.task(**options)


def test_a_batch_in_groups_is_refused(tasks: TaskRegistry) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        tasks.task(batch=2, group_commit=2)
