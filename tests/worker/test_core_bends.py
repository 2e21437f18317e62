"""Core handlers that bend the fence: no commit without a live token, and no work that is lost silently."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue import CommitRefused
from tests.behaviour.business import Effect
from tests.worker.core import before_the_second, enqueue_three, instead_of_the_second, write
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.worker.core import Both

    Declare = Callable[..., None]

REFUSED = "CommitRefused: commit refused: the handler commits before its job is acknowledged"
CLOSED = "the handler closed its connection, which undid what it had changed"


def commits(connection: Connection) -> None:
    write(connection, "half")
    connection.commit()


def commits_what_it_began(connection: Connection) -> None:
    with connection.begin():
        write(connection, "half")


def commits_by_its_transaction(connection: Connection) -> None:
    transaction = connection.begin()
    write(connection, "half")
    transaction.commit()


def commits_past_a_savepoint(connection: Connection) -> None:
    write(connection, "half")
    connection.begin_nested()
    connection.commit()


def commits_after_a_rollback(connection: Connection) -> None:
    write(connection, "undone")
    connection.rollback()
    commits(connection)


def commits_by_a_session_that_began(connection: Connection) -> None:
    connection.rollback()
    with Session(connection) as session, session.begin():
        session.add(Effect(name="half"))


_COMMITS = [
    commits,
    commits_what_it_began,
    commits_by_its_transaction,
    commits_past_a_savepoint,
    commits_after_a_rollback,
    commits_by_a_session_that_began,
]


@pytest.mark.parametrize("bend", _COMMITS, ids=lambda bend: bend.__name__)
def test_a_handler_that_commits_by_itself_is_refused_and_leaves_nothing(
    bend: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    declare_core(before_the_second(bend))
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["first", "third"])
    assert REFUSED in only_error(observer, jobs[1])


@pytest.mark.parametrize("anew", [False, True], ids=["and returns", "and works anew"])
@pytest.mark.parametrize("bend", _COMMITS, ids=lambda bend: bend.__name__)
def test_a_handler_that_swallows_the_refusal_is_not_acknowledged_without_what_it_did(
    bend: Callable[[Connection], None],
    anew: bool,  # noqa: FBT001 - a parameter of the test
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    def swallow(connection: Connection, _name: str) -> None:
        with pytest.raises(CommitRefused):
            bend(connection)
        if anew:
            connection.rollback()
            write(connection, "anew")

    declare_core(swallow)
    job = enqueue("swallow", max_attempts=1)
    crew.drain()
    assert REFUSED in only_error(observer, job)
    assert (observer.effects(), observer.dedup_keys()) == ([], [])


def test_a_handler_that_runs_into_what_follows_a_refusal_fails_with_the_refusal(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    def go_on(connection: Connection, name: str) -> None:
        with suppress(CommitRefused):
            commits(connection)
        write(connection, name)

    declare_core(go_on)
    job = enqueue("go_on", max_attempts=1)
    crew.drain()
    assert only_error(observer, job).startswith(REFUSED)
    assert observer.effects() == []


def closes(connection: Connection) -> None:
    write(connection, "lost")
    connection.close()


def closes_what_it_has_not_used(connection: Connection) -> None:
    connection.close()


def uses_it_as_a_context(connection: Connection) -> None:
    with connection:
        write(connection, "lost")


@pytest.mark.parametrize("bend", [closes, closes_what_it_has_not_used, uses_it_as_a_context], ids=lambda b: b.__name__)
def test_a_handler_that_closes_its_connection_fails_rather_than_lose_its_work_silently(
    bend: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    declare_core(instead_of_the_second(bend))
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["first", "third"])
    assert CLOSED in only_error(observer, jobs[1])


def test_a_transaction_in_two_phases_is_refused(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    def prepare(connection: Connection, _name: str) -> None:
        connection.begin_twophase()

    declare_core(prepare)
    job = enqueue("prepare", max_attempts=1)
    crew.drain()
    assert "JobQueueError: the connection of a handler has no two-phase transactions" in only_error(observer, job)


def test_a_handler_in_a_session_of_its_connection_leaves_the_commit_to_the_worker(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def use_a_session(connection: Connection) -> None:
        write(connection, "by the connection")
        with Session(connection) as session:
            session.add(Effect(name="in the session"))
            session.commit()
            assert observer.effects() == ["first"]

    declare_core(before_the_second(use_a_session))
    enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert events.outcomes() == ["done"] * 3
    assert observer.effects() == ["first", "by the connection", "in the session", "second", "third"]


def swallow_at_the_statement(connection: Connection) -> None:
    with suppress(DBAPIError):
        connection.execute(insert(Effect).values(id=1, name="twice"))


def swallow_in_a_savepoint_that_is_left_open(connection: Connection) -> None:
    connection.begin_nested()
    swallow_at_the_statement(connection)


def swallow_and_run_into_what_follows(connection: Connection) -> None:
    swallow_at_the_statement(connection)
    connection.execute(text("SELECT 1"))


def swallow_after_another_error_was_survived(connection: Connection) -> None:
    with pytest.raises(DBAPIError), connection.begin_nested():
        connection.execute(text("SELECT 1/0"))
    swallow_at_the_statement(connection)


_SWALLOWING = [
    swallow_at_the_statement,
    swallow_in_a_savepoint_that_is_left_open,
    swallow_and_run_into_what_follows,
    swallow_after_another_error_was_survived,
]


@pytest.mark.parametrize("swallow", _SWALLOWING, ids=lambda bend: bend.__name__)
def test_a_handler_that_swallows_a_database_error_fails_with_that_error(
    swallow: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    observer.all("INSERT INTO effect VALUES (1, 'there'); SELECT setval('effect_id_seq', 1)")
    declare_core(instead_of_the_second(swallow))
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1)
    assert only_error(observer, jobs[1]).startswith("IntegrityError: (psycopg.errors.UniqueViolation) duplicate key")
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["there", "first", "third"])


def test_a_commit_that_a_listener_of_the_application_fails_leaves_nothing_to_the_next_one_on_its_connection(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, both: Both
) -> None:
    def refuse(connection: Connection) -> None:
        if not refused and observer.effects() == ["first"]:
            refused.append(connection)
            message = "not today"
            raise ValueError(message)

    refused: list[Connection] = []
    for each in both.each:
        event.listen(each, "commit", refuse)
    declare_core(write, name="task")
    jobs = enqueue_three(enqueue)
    crew.drain(concurrency=1, **both.makers)
    assert only_error(observer, jobs[1]) == "ValueError: not today"
    assert observer.effects() == ["first", "third"]
