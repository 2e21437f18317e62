"""A prune may take a key away between the look at it and the acknowledgement of its duplicate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event

from sa_jobqueue import current_job
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

SOMEBODYS_KEY = "INSERT INTO jobqueue_dedup_key (scope, key, job_id) VALUES ('charge', 'order:7', -1)"


@pytest.fixture
def pruned_before_the_suppress(observer: Observer) -> Iterator[None]:
    """The key goes as the worker is about to acknowledge the duplicate."""

    def prune(_connection: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if "AS exists" in sql:
            observer.all("DELETE FROM jobqueue_dedup_key WHERE job_id = -1")

    event.listen(Engine, "before_cursor_execute", prune)
    yield
    event.remove(Engine, "before_cursor_execute", prune)


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
