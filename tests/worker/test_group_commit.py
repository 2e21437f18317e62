"""Group commit: handlers that know nothing of each other share a transaction, and none pays for another's failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select, text

from sa_jobqueue import Backoff, RejectJob, current_job
from sa_jobqueue.observe import RunEnded, RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

COMMITS = "SELECT count(DISTINCT xmin::text) FROM effect"


@pytest.fixture(params=["function", "coroutine"])
def grouped(request: pytest.FixtureRequest, tasks: TaskRegistry) -> list[int]:
    """A task ``mark`` in groups of 10, as a function or coroutine; the answer is the jobs that it was called for."""
    called: list[int] = []
    declare = tasks.task(name="mark", queue=QUEUE, group_commit=10, backoff=Backoff(base=0.01, jitter=0, cap=0.01))

    def work(name: str) -> Effect:
        called.append(current_job().id)
        if name == "bad":
            raise ValueError(name)
        if name == "rejected":
            raise RejectJob(name)
        return Effect(name=name)

    def mark(session: Session, name: str) -> None:
        session.add(work(name))

    async def amark(session: AsyncSession, name: str) -> None:
        session.add(work(name))

    declare(mark if request.param == "function" else amark)
    return called


def enqueue_all(enqueue: Callable[..., EnqueuedJob], *names: str, **options: object) -> list[EnqueuedJob]:
    return [enqueue("mark", {"name": name}, **options) for name in names]


@pytest.mark.usefixtures("grouped")
def test_jobs_of_a_group_have_their_effects_dedup_rows_and_acks_in_one_commit(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue_all(enqueue, *"abcdefghij")
    crew.drain(concurrency=1)
    assert observer.effects() == list("abcdefghij")
    assert observer.scalar(COMMITS) == 1
    assert len(observer.dedup_keys()) == 10
    assert events.outcomes() == ["done"] * 10


def test_a_failing_job_costs_only_itself_and_the_others_are_run_one_by_one(
    grouped: list[int], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    jobs = enqueue_all(enqueue, "a", "b", "bad", "c", max_attempts=2)
    crew.drain(concurrency=1)
    assert observer.effects() == ["a", "b", "c"]
    assert observer.scalar(COMMITS) == 3
    (dead,) = observer.dead(jobs[2].id)
    assert [entry["error"] for entry in dead.errors] == ["ValueError: bad"] * 2
    assert sorted(events.outcomes()) == ["dead", "done", "done", "done", "retried"]
    assert len([event for event in events.of(RunStarted) if event.job.id == jobs[0].id]) == 1
    assert grouped.count(jobs[0].id) == 2


@pytest.mark.usefixtures("grouped")
def test_a_job_that_rejects_itself_is_buried_and_takes_nobody_along(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    jobs = enqueue_all(enqueue, "a", "rejected", "b")
    crew.drain(concurrency=1)
    assert observer.effects() == ["a", "b"]
    assert observer.dead(jobs[1].id)[0].reason == "rejected"


@pytest.mark.usefixtures("grouped")
def test_a_key_that_two_jobs_of_a_group_share_has_one_effect(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue_all(enqueue, "a", "b", dedup_key="same")
    enqueue_all(enqueue, "c")
    crew.drain(concurrency=1)
    assert observer.effects() in (["a", "c"], ["b", "c"])
    assert sorted(events.outcomes()) == ["done", "done", "duplicate"]


@pytest.mark.usefixtures("grouped")
def test_an_effect_that_exists_already_is_suppressed_without_spoiling_the_group(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, grouped: list[int]
) -> None:
    enqueue_all(enqueue, "a", dedup_key="known")
    crew.drain(concurrency=1)
    (again,) = enqueue_all(enqueue, "again", dedup_key="known")
    enqueue_all(enqueue, "b", "c")
    crew.drain(concurrency=1)
    assert observer.effects() == ["a", "b", "c"]
    assert again.id not in grouped


def test_a_job_of_a_group_whose_lease_was_lost_is_left_to_its_new_owner_and_the_others_are_done(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    stolen: list[int] = []

    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        if name == "stolen" and not stolen:
            stolen.append(current_job().id)
            observer.steal(stolen[0])

    enqueue_all(enqueue, "a", "stolen", "b")
    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=2)
    assert observer.effects() == ["a", "b"]
    assert observer.state(stolen[0]) == "claimed"


def test_a_handler_that_commits_by_itself_fails_alone(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        if name == "commits":
            session.commit()

    jobs = enqueue_all(enqueue, "a", "commits", "b", max_attempts=1)
    crew.drain(concurrency=1)
    assert observer.effects() == ["a", "b"]
    assert "commit refused" in observer.dead(jobs[1].id)[0].errors[0]["error"]


def test_a_handler_that_hangs_in_a_group_is_ended_and_the_others_keep_their_attempts(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = threading.Event()

    @tasks.task(queue=QUEUE, group_commit=10, time_limit=0.3)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        if name == "hangs":
            go_on.wait(30)

    jobs = enqueue_all(enqueue, "a", "hangs", "b", max_attempts=1)
    crew.drain(concurrency=1)
    go_on.set()
    assert observer.effects() == ["a", "b"]
    assert "TimeLimitExceeded" in observer.dead(jobs[1].id)[0].errors[0]["error"]
    assert sorted(set(events.outcomes())) == ["dead", "done", "released"]


@pytest.mark.parametrize("deed", ["rollback", "expunge_all", "close", "expire_all"])
def test_a_handler_that_undoes_something_in_its_session_undoes_nothing_of_the_others(
    deed: str, tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        if name == "undoes":
            getattr(session, deed)()
        else:
            session.add(Effect(name=name))

    enqueue_all(enqueue, "a", "undoes", "b", max_attempts=1)
    crew.drain(concurrency=1)
    assert observer.effects() == ["a", "b"]


def test_a_change_of_a_row_that_the_next_handler_reads_anew_is_not_forgotten(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        with session.no_autoflush:
            (effect,) = session.scalars(select(Effect).execution_options(populate_existing=True))
            effect.name += name

    observer.all("INSERT INTO effect (name) VALUES ('x')")
    enqueue_all(enqueue, "a", "b", "c")
    crew.drain(concurrency=1)
    assert observer.effects() == ["xabc"]


def test_a_job_that_was_tried_before_is_run_alone(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    tried = enqueue_all(enqueue, "tried")[0]
    observer.all("UPDATE jobqueue_job SET attempt = 1 WHERE id = :id", id=tried.id)
    enqueue_all(enqueue, "a", "b")
    crew.drain(concurrency=1)
    assert observer.all("SELECT count(*) FROM effect GROUP BY xmin::text ORDER BY 1") == [(1,), (2,)]


@pytest.mark.parametrize("limit", ["statement_timeout", "idle_in_transaction_session_timeout"])
def test_a_handler_that_runs_into_a_limit_of_the_server_takes_nobody_along(
    limit: str, tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE, group_commit=10)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        if name == "slow":
            session.execute(text(f"SET LOCAL {limit} = 100"))
            pid = session.scalar(text("SELECT pg_backend_pid()"))
            if limit == "statement_timeout":
                session.execute(text("SELECT pg_sleep(30)"))
            alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"
            wait_until(lambda: observer.scalar(alive, pid=pid) == 0, timeout=20, what="the server to end the session")
            session.scalar(text("SELECT 1"))

    enqueue_all(enqueue, "a", "slow", "b", max_attempts=1)
    worker = crew.start(concurrency=1)
    events.wait_for(RunEnded, count=3)
    worker.stop()
    assert observer.effects() == ["a", "b"]
    assert sorted(event.outcome for event in events.of(RunEnded) if event.job.args["name"] != "slow") == ["done"] * 2
