"""The ack of a single job on its way with the COMMIT: where it may, as soon as it can, and never a COMMIT without it.

The first ack of a connection is prepared by the driver, so each test here does a first job on the worker's only
connection, and looks at the second.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, event, text

from sa_jobqueue import JobSession, current_job
from sa_jobqueue.observe import LeaseWasLost
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew
from tests.waiting import no_thread_left_behind, wait_until
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Events
    from tests.proofs.process import WorkerProcess

    Act = Callable[[Session], object]
    Declare = Callable[..., None]

_TOGETHER = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND (query LIKE 'EXECUTE %; COMMIT' OR query LIKE 'BEGIN; EXECUTE %; COMMIT')"
)


def nothing(_session: Session) -> None: ...


def together(observer: Observer) -> bool:
    """Whether the last message on some connection was an ack with its COMMIT."""
    return observer.scalar(_TOGETHER) > 0


@pytest.fixture
def own_engine(engine: Engine) -> Iterator[Engine]:
    """The application's, whose connections nobody else takes out of the pool."""
    apart = create_engine(engine.url)
    yield apart
    apart.dispose()


@pytest.fixture
def crew(tasks: TaskRegistry, own_engine: Engine, events: Events) -> Iterator[Crew]:
    crew = Crew(tasks, own_engine, events)
    yield crew
    crew.close()


@pytest.fixture(params=["function", "coroutine"])
def declare(request: pytest.FixtureRequest, tasks: TaskRegistry) -> Declare:
    """Declare a task ``write``, which writes its effect; what the second run does before that is given."""

    def declare(act: Act = nothing, *, always: Act = nothing) -> None:
        def function(session: Session, name: str) -> None:
            (act if name == "second" else always)(session)
            session.add(Effect(name=name))

        async def coroutine(session: AsyncSession, name: str) -> None:
            await session.run_sync(function, name)

        tasks.task(queue=QUEUE, name="write", max_attempts=1)(locals()[request.param])

    return declare


@pytest.fixture
def enqueue_three(enqueue: Callable[..., EnqueuedJob]) -> Callable[[], list[EnqueuedJob]]:
    def enqueue_them() -> list[EnqueuedJob]:
        return [enqueue("write", {"name": name}, max_attempts=1) for name in ("first", "second", "third")]

    return enqueue_them


def test_from_the_second_job_of_a_connection_on_the_ack_goes_with_the_commit(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer, events: Events
) -> None:
    def look(_session: Session) -> None:
        seen.append(together(observer))

    seen: list[bool] = []
    declare(look, always=look)
    enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), seen) == (["done"] * 3, [False, False, True])


def test_a_handler_without_a_statement_takes_one_message_that_the_server_does_not_warn_of(
    tasks: TaskRegistry, enqueue: Callable[..., EnqueuedJob], crew: Crew, observer: Observer, own_engine: Engine
) -> None:
    said: list[object] = []
    event.listen(own_engine, "connect", lambda driver, _record: driver.add_notice_handler(said.append))
    tasks.task(queue=QUEUE, name="idle")(nothing)
    jobs = [enqueue("idle") for _ in range(3)]
    crew.drain(concurrency=1)
    assert (together(observer), said) == (True, [])
    assert [observer.job(job.id) for job in jobs] == [None] * 3


@pytest.mark.parametrize("options", [{"natural_keys_only": True}, {"job_log": True}], ids=str)
def test_what_the_worker_was_told_of_keys_and_of_the_log_holds_for_both_ways(
    options: dict[str, bool],
    declare: Declare,
    enqueue_three: Callable[[], object],
    crew: Crew,
    observer: Observer,
    events: Events,
) -> None:
    declare()
    enqueue_three()
    crew.drain(concurrency=1, **options)
    assert events.outcomes() == ["done"] * 3
    assert len(observer.dedup_keys()) == (0 if "natural_keys_only" in options else 3)
    assert observer.scalar("SELECT count(*) FROM jobqueue_job_log") == (3 if "job_log" in options else 0)


def test_a_stale_token_commits_nothing_and_leaves_the_connection_fit_for_the_next_job(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer, events: Events
) -> None:
    def lose_the_lease(_session: Session) -> None:
        observer.steal(current_job().id)

    declare(lose_the_lease)
    enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "done"], ["first", "third"])
    assert len(events.of(LeaseWasLost)) == 1


def test_an_effect_that_exists_by_now_makes_the_run_a_duplicate_without_an_effect(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer, events: Events
) -> None:
    def be_overtaken(_session: Session) -> None:
        job = current_job()
        values = {"scope": job.dedup_scope, "key": job.idempotency_key}
        observer.all("INSERT INTO jobqueue_dedup_key (scope, key, job_id) VALUES (:scope, :key, -1)", **values)

    declare(be_overtaken)
    enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "duplicate", "done"], ["first", "third"])


def test_a_handler_that_wrote_its_dedup_row_by_itself_is_done(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer, events: Events
) -> None:
    def write_it(session: Session) -> None:
        assert JobSession(session).once(current_job())

    declare(write_it)
    enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, ["first", "second", "third"])


def test_statements_that_the_driver_has_dropped_are_not_named(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer, events: Events
) -> None:
    def roll_a_savepoint_back(session: Session) -> None:
        session.begin_nested().rollback()

    declare(roll_a_savepoint_back)
    enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, ["first", "second", "third"])


def test_whoever_else_hears_of_a_commit_hears_of_it_before_it_is_sent(
    declare: Declare, enqueue_three: Callable[[], object], crew: Crew, observer: Observer
) -> None:
    def count_jobs(_connection: object) -> None:
        left.append(observer.scalar("SELECT count(*) FROM jobqueue_job"))

    def listen_after_the_worker(session: Session) -> None:
        event.listen(session.get_bind(), "commit", count_jobs)

    left: list[int] = []
    declare(listen_after_the_worker)
    enqueue_three()
    crew.drain(concurrency=1)
    assert left == [2, 1]


def test_an_ack_whose_commit_was_refused_is_not_made_up_for_by_the_next_commit_on_its_connection(
    declare: Declare, enqueue: Callable[..., EnqueuedJob], crew: Crew, observer: Observer, own_engine: Engine
) -> None:
    def refuse(_session: object) -> None:
        message = "not today"
        raise ValueError(message)

    declare(lambda session: event.listen(session, "before_commit", refuse))
    for name in ("first", "second"):
        enqueue("write", {"name": name}, max_attempts=1)
    crew.drain(concurrency=1)
    with own_engine.begin() as connection:
        connection.execute(text("INSERT INTO effect (name) VALUES ('else')"))
    assert observer.effects() == ["first", "else"]


def test_a_commit_that_a_listener_of_the_engine_fails_leaves_nothing_to_the_next_one_on_its_connection(
    declare: Declare, enqueue_three: Callable[[], list[EnqueuedJob]], crew: Crew, observer: Observer
) -> None:
    def refuse(_connection: object) -> None:
        if len(refused) == 1:
            refused.append(None)
            message = "not today"
            raise ValueError(message)

    def let_it_be_refused(session: Session) -> None:
        event.listen(session.get_bind(), "commit", refuse)
        refused.append(None)

    refused: list[None] = []
    declare(let_it_be_refused)
    jobs = enqueue_three()
    crew.drain(concurrency=1)
    assert only_error(observer, jobs[1]) == "ValueError: not today"
    assert observer.effects() == ["first", "third"]


def test_where_another_database_is_committed_too_the_ack_comes_before_both_commits(
    tasks: TaskRegistry,
    enqueue_three: Callable[[], object],
    crew: Crew,
    observer: Observer,
    events: Events,
    empty_database_url: str,
) -> None:
    @tasks.task(queue=QUEUE)
    def write(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        session.execute(text("SELECT 1"), bind_arguments={"bind": other})

    other = create_engine(empty_database_url)
    enqueue_three()
    crew.drain(concurrency=1)
    other.dispose()
    assert (events.outcomes(), together(observer)) == (["done"] * 3, False)


def test_an_error_of_the_commit_itself_is_recorded_as_what_it_is(
    declare: Declare, enqueue_three: Callable[[], list[EnqueuedJob]], crew: Crew, observer: Observer, events: Events
) -> None:
    observer.all(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE invalid_text_representation USING MESSAGE = ''not this one''; END'"
    )
    observer.all(
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (NEW.name = 'second') EXECUTE FUNCTION refuse()"
    )
    declare()
    jobs = enqueue_three()
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done", "dead", "done"], ["first", "third"])
    assert "InvalidTextRepresentation) not this one" in only_error(observer, jobs[1])


def test_a_kill_while_the_server_reads_the_message_leaves_the_whole_of_it_or_nothing(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer, engine: Engine
) -> None:
    observer.all(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END'"
    )
    observer.all(
        "CREATE TRIGGER wait BEFORE INSERT ON jobqueue_dedup_key FOR EACH ROW "
        "WHEN (NEW.key = 'second') EXECUTE FUNCTION wait()"
    )
    jobs = [enqueue("mark", {"name": key}, dedup_key=key) for key in ("first", "second")]
    with engine.begin() as holder:
        holder.execute(text("SELECT pg_advisory_xact_lock(7)"))
        worker = start_process(concurrency=1)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: observer.scalar(waiting), what="the message to be read")
        assert observer.scalar(_TOGETHER) == 1
        worker.kill()
    wait_until(lambda: observer.job(jobs[1].id) is None, what="the server to read the message to its end")
    assert (observer.effects(), len(observer.dedup_keys())) == (["first", "second"], 2)


def test_a_handler_that_was_given_up_and_comes_back_after_the_worker_has_ended_commits_nothing(
    tasks: TaskRegistry, enqueue: Callable[..., EnqueuedJob], crew: Crew, observer: Observer
) -> None:
    started, go_on = threading.Event(), threading.Event()

    @tasks.task(queue=QUEUE)
    def write(session: Session, name: str) -> None:
        if name == "second":
            started.set()
            assert go_on.wait(30)
        session.add(Effect(name=name))

    for name in ("first", "second"):
        enqueue("write", {"name": name})
    with no_thread_left_behind():
        worker = crew.start(concurrency=1, grace=0)
        assert started.wait(20)
        worker.stop()
        crew.wait()
        go_on.set()
    assert (observer.effects(), observer.count("queued")) == (["first"], 1)
