"""Handlers that end their transaction by themselves: the commit is the worker's, and no work is lost silently."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.orm import sessionmaker as session_factory

from sa_jobqueue import CommitRefused, JobSession, current_job
from sa_jobqueue.observe import LeaseWasLost
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import no_thread_left_behind
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def test_a_handler_that_commits_by_itself_is_refused_and_leaves_nothing(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    @tasks.task(queue=QUEUE)
    def commit(session: Session) -> None:
        session.add(Effect(name="half"))
        session.commit()

    job = enqueue("commit", max_attempts=1)
    crew.drain()
    assert only_error(observer, job).startswith("CommitRefused: commit refused: the handler commits before")
    assert observer.effects() == []


def test_a_handler_that_swallows_the_refusal_still_has_its_effect_once_and_with_the_ack(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def commit(session: Session) -> None:
        session.add(Effect(name="whole"))
        with pytest.raises(CommitRefused):
            session.commit()

    enqueue("commit")
    crew.drain()
    assert (events.outcomes(), observer.effects()) == (["done"], ["whole"])


def test_a_handler_may_acknowledge_its_job_and_commit_by_itself(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def settle(session: Session) -> None:
        session.add(Effect(name="own"))
        session.flush()
        JobSession(session).ack(current_job())
        session.commit()

    enqueue("settle")
    crew.drain()
    assert (events.outcomes(), observer.effects()) == (["done"], ["own"])


def close(session: Session) -> None:
    session.add(Effect(name="lost"))
    session.close()


def flush_and_close(session: Session) -> None:
    session.add(Effect(name="lost"))
    session.flush()
    session.close()


def use_as_a_context(session: Session) -> None:
    with session:
        session.add(Effect(name="lost"))


@pytest.mark.parametrize("handler", [close, flush_and_close, use_as_a_context], ids=lambda handler: handler.__name__)
def test_a_handler_that_closes_its_session_fails_rather_than_lose_its_work_silently(
    handler: Callable[[Session], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    tasks.task(queue=QUEUE, name="close")(handler)
    job = enqueue("close", max_attempts=1)
    crew.drain()
    assert "the handler closed its session, which undid what it had changed" in only_error(observer, job)


@pytest.mark.parametrize("let_go", [Session.close, Session.rollback, Session.invalidate], ids=lambda act: act.__name__)
def test_whoever_gets_the_connection_that_a_handler_has_let_go_is_not_ended_with_its_run(
    let_go: Callable[[Session], None],
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    has_let_go, go_on = Event(), Event()

    @tasks.task(queue=QUEUE, visibility_timeout=1.5)
    def linger(session: Session) -> None:
        session.execute(text("SELECT 1"))
        let_go(session)
        has_let_go.set()
        go_on.wait(30)

    home = create_engine(engine.url, pool_size=1, max_overflow=0)
    job = enqueue("linger")
    with no_thread_left_behind():
        worker = crew.start(sessionmaker=session_factory(home), concurrency=1, grace=0)
        assert has_let_go.wait(20)
        with home.connect() as another:
            observer.steal(job.id)
            events.wait_for(LeaseWasLost)
            assert another.scalar(text("SELECT 1")) == 1
        go_on.set()
        worker.stop()
    home.dispose()


def test_a_handler_that_rolls_back_and_begins_anew_is_done_with_what_came_after(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def change_its_mind(session: Session) -> None:
        session.add(Effect(name="first"))
        session.flush()
        session.rollback()
        session.add(Effect(name="second"))

    enqueue("change_its_mind")
    crew.drain()
    assert (events.outcomes(), observer.effects()) == (["done"], ["second"])


def test_a_handler_that_expunges_everything_is_done_with_what_it_had_flushed(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def expunge(session: Session) -> None:
        session.add(Effect(name="flushed"))
        session.flush()
        session.expunge_all()

    enqueue("expunge")
    crew.drain()
    assert (events.outcomes(), observer.effects()) == (["done"], ["flushed"])
