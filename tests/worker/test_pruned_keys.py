"""A prune may take a key away between the look at it and the acknowledgement of its duplicate."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from sa_jobqueue import InvalidArgument, JobSession, current_job
from sa_jobqueue.worker.control import settle_verdict
from sa_jobqueue.worker.verdict import Ending, Verdict
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

SOMEBODYS_KEY = "INSERT INTO jobqueue_dedup_key (scope, key, job_id) VALUES ('charge', 'order:7', -1)"
REFUSAL = "not through this hook"


@pytest.fixture
def pruned_before_the_suppress(observer: Observer) -> Iterator[None]:
    """The key goes as the worker is about to acknowledge the duplicate."""

    with _before_the_suppress(lambda: observer.all("DELETE FROM jobqueue_dedup_key WHERE job_id = -1")):
        yield


@pytest.fixture
def refused_before_the_suppress() -> Iterator[None]:
    """A hook of the application refuses the statement, with an error of the same base class."""

    def refuse() -> None:
        raise InvalidArgument(REFUSAL)

    with _before_the_suppress(refuse):
        yield


@contextmanager
def _before_the_suppress(act: Callable[[], object]) -> Iterator[None]:
    """Act in front of the first one."""
    seen: list[str] = []

    def listen(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if "AS exists" in sql and not seen:
            seen.append(sql)
            act()

    event.listen(Engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", listen)


@pytest.mark.usefixtures("pruned_before_the_suppress")
@pytest.mark.parametrize("seen", ["at the claim", "at the ack"])
def test_a_duplicate_whose_key_is_pruned_before_it_is_acknowledged_runs_and_loses_no_attempt(
    seen: str,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=3)
    def charge(session: Session) -> None:
        session.add(Effect(name=f"attempt {current_job().attempt}"))
        if seen == "at the ack" and current_job().token == 1:
            observer.all(SOMEBODYS_KEY)

    if seen == "at the claim":
        observer.all(SOMEBODYS_KEY)
    job = enqueue("charge", dedup_key="order:7", max_attempts=1)
    crew.drain(concurrency=1)

    assert events.outcomes() == ["snoozed", "done"]
    assert observer.effects() == ["attempt 1"]
    assert observer.dead(job.id) == []


@pytest.mark.usefixtures("refused_before_the_suppress")
def test_another_error_at_the_acknowledgement_of_a_duplicate_is_a_failure(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def charge(_session: Session) -> None: ...

    observer.all(SOMEBODYS_KEY)
    job = enqueue("charge", dedup_key="order:7", max_attempts=1)
    crew.drain(concurrency=1)

    assert events.outcomes() == ["dead"]
    assert REFUSAL in observer.dead(job.id)[0].errors[-1]["error"]


@pytest.mark.usefixtures("refused_before_the_suppress")
def test_another_error_at_the_record_of_a_duplicate_is_not_recorded_as_a_snooze(
    enqueue: Callable[..., EnqueuedJob], observer: Observer, sessionmaker: sessionmaker[Session]
) -> None:
    job = enqueue("charge", dedup_key="order:7")
    with sessionmaker.begin() as session:
        claimed = JobSession(session).claim(QUEUE)

    with pytest.raises(InvalidArgument, match=REFUSAL), sessionmaker.begin() as session:
        settle_verdict(JobSession(session), claimed, Verdict(Ending.DUPLICATE))

    assert observer.state(job.id) == "claimed"
