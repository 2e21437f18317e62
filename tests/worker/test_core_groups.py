"""Core handlers of several jobs: batches and group commits on one connection, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import current_job
from sa_jobqueue.observe import RunEnded
from tests.proofs.app import QUEUE
from tests.worker.core import write
from tests.worker.dead import only_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from sa_jobqueue import ClaimedJob, EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

    Declare = Callable[..., None]

COMMITS = "SELECT count(DISTINCT xmin::text) FROM effect"


@pytest.fixture(params=["function", "coroutine"])
def calls(request: pytest.FixtureRequest, tasks: TaskRegistry, observer: Observer) -> list[list[str]]:
    """A batch task ``mark``, as a function or coroutine, of at most 5 jobs; the names of each call."""
    called: list[list[str]] = []
    declare = tasks.task(name="mark", queue=QUEUE, batch=5, core=True)

    def mark(connection: Connection, jobs: list[ClaimedJob]) -> None:
        called.append([job.args["name"] for job in jobs])
        for job in jobs:
            write(connection, job.args["name"])
        if "stale" in called[-1] and len(called) == 1:
            observer.steal(next(job.id for job in jobs if job.args["name"] == "stale"))
        if "bad" in called[-1]:
            raise ValueError(called[-1])

    async def amark(connection: AsyncConnection, jobs: list[ClaimedJob]) -> None:
        await connection.run_sync(mark, jobs)

    declare(mark if request.param == "function" else amark)
    return called


def enqueue_all(enqueue: Callable[..., EnqueuedJob], *names: str) -> list[EnqueuedJob]:
    return [enqueue("mark", {"name": name}, max_attempts=1) for name in names]


def test_a_batch_is_one_call_and_one_commit(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue_all(enqueue, *"abcdefg")
    crew.drain(concurrency=1)
    assert calls == [list("abcde"), list("fg")]
    assert (observer.effects(), observer.scalar(COMMITS)) == (list("abcdefg"), 2)
    assert (events.outcomes(), len(observer.dedup_keys())) == (["done"] * 7, 7)


def test_a_batch_that_fails_is_called_again_with_each_job_alone(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    jobs = enqueue_all(enqueue, "a", "bad", "b")
    crew.drain(concurrency=1)
    assert calls == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert observer.effects() == ["a", "b"]
    assert only_error(observer, jobs[1]) == "ValueError: ['bad']"


def test_a_job_of_a_batch_whose_lease_was_lost_costs_only_itself(
    calls: list[list[str]], crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    jobs = enqueue_all(enqueue, "a", "stale", "b")
    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=2)
    assert (observer.effects(), calls[0]) == (["a", "b"], ["a", "stale", "b"])
    assert observer.state(jobs[1].id) == "claimed"


def test_jobs_of_a_group_have_their_effects_dedup_rows_and_acks_in_one_commit(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    declare_core(write, name="mark", group_commit=10)
    enqueue_all(enqueue, *"abcdefghij")
    crew.drain(concurrency=1)
    assert (observer.effects(), observer.scalar(COMMITS)) == (list("abcdefghij"), 1)
    assert (events.outcomes(), len(observer.dedup_keys())) == (["done"] * 10, 10)


def raises(_connection: Connection) -> None:
    raise ValueError


def commits(connection: Connection) -> None:
    connection.commit()


def commits_and_swallows_the_refusal(connection: Connection) -> None:
    with pytest.raises(Exception, match="commit refused"), connection.begin_nested():
        connection.commit()


def closes(connection: Connection) -> None:
    connection.close()


@pytest.mark.parametrize("bend", [raises, commits, commits_and_swallows_the_refusal, closes], ids=lambda b: b.__name__)
def test_a_job_of_a_group_that_fails_costs_only_itself(
    bend: Callable[[Connection], None],
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    def mark(connection: Connection, name: str) -> None:
        write(connection, name)
        if name == "bad":
            bend(connection)

    declare_core(mark, group_commit=10)
    jobs = enqueue_all(enqueue, "a", "bad", "b")
    crew.drain(concurrency=1)
    assert (observer.effects(), sorted(events.outcomes())) == (["a", "b"], ["dead", "done", "done"])
    assert observer.dead(jobs[1].id)[0].reason == "failed"


def rolls_back(connection: Connection) -> None:
    connection.rollback()


def leaves_a_savepoint_open(connection: Connection) -> None:
    connection.begin_nested()


def rolls_a_savepoint_back(connection: Connection) -> None:
    connection.begin_nested().rollback()


@pytest.mark.parametrize(
    ("deed", "commits"),
    [(rolls_back, 3), (leaves_a_savepoint_open, 1), (rolls_a_savepoint_back, 1)],
    ids=["rollback", "open savepoint", "rollback to a savepoint"],
)
def test_what_a_handler_of_a_group_undoes_is_nothing_of_the_others(
    deed: Callable[[Connection], None],
    commits: int,
    declare_core: Declare,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    def mark(connection: Connection, name: str) -> None:
        if name == "b":
            deed(connection)
        write(connection, name)

    declare_core(mark, group_commit=10)
    enqueue_all(enqueue, *"abc")
    crew.drain(concurrency=1)
    assert (events.outcomes(), observer.effects()) == (["done"] * 3, list("abc"))
    assert len({row.x for row in observer.all("SELECT xmin::text AS x FROM jobqueue_dedup_key")}) == commits


def test_a_job_of_a_group_whose_lease_was_lost_is_left_to_its_new_owner_and_the_others_are_done(
    declare_core: Declare, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    def mark(connection: Connection, name: str) -> None:
        write(connection, name)
        if name == "stolen" and not stolen:
            stolen.append(current_job().id)
            observer.steal(stolen[0])

    stolen: list[int] = []
    declare_core(mark, group_commit=10)
    enqueue_all(enqueue, "a", "stolen", "b")
    crew.start(concurrency=1)
    events.wait_for(RunEnded, count=2)
    assert (observer.effects(), observer.state(stolen[0])) == (["a", "b"], "claimed")
