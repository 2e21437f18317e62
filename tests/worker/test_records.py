"""What a worker leaves in writing: dedup rows, the job log, and the counts behind ``stats()``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import Backoff, JobSession, RejectJob, SnoozeJob, current_job
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew


@pytest.fixture(autouse=True)
def mixed(tasks: TaskRegistry) -> None:
    """A task that does what its job's argument says, on the first attempt; then it succeeds."""

    @tasks.task(queue=QUEUE, backoff=Backoff(base=0.01, jitter=0, cap=1))
    def mixed(session: Session, ending: str) -> None:
        if ending == "rejected":
            raise RejectJob
        if current_job().token == 1 and ending == "retried":
            raise ValueError
        if current_job().token == 1 and ending == "snoozed":
            raise SnoozeJob(0)
        session.add(Effect(name=ending))


def enqueue_one_of_each(enqueue: Callable[..., EnqueuedJob]) -> None:
    for ending in ("done", "retried", "snoozed", "rejected"):
        enqueue("mixed", {"ending": ending}, dedup_key=ending)
    enqueue("mixed", {"ending": "done"}, dedup_key="done")


def test_the_job_log_has_a_row_for_every_run_with_its_outcome(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    enqueue_one_of_each(enqueue)
    crew.drain(job_log=True, name="scribe", concurrency=1)
    rows = observer.all("SELECT * FROM jobqueue_job_log ORDER BY id")
    assert sorted(row.outcome for row in rows) == [
        *["dead"],
        *["done"] * 3,
        "duplicate",
        "retried",
        "snoozed",
    ]
    assert {row.worker for row in rows} == {"scribe"}
    assert all(row.enqueued_at <= row.claimed_at <= row.finished_at for row in rows)


def test_without_the_option_no_run_is_logged(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    enqueue_one_of_each(enqueue)
    crew.drain()
    assert observer.scalar("SELECT count(*) FROM jobqueue_job_log") == 0


def test_stats_count_what_the_fleet_has_run(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], sessionmaker: sessionmaker[Session]
) -> None:
    enqueue_one_of_each(enqueue)
    crew.drain(concurrency=1)
    with sessionmaker() as session:
        (stats,) = JobSession(session).stats()
    assert (stats.queue, stats.queued, stats.scheduled, stats.claimed, stats.dead) == (QUEUE, 0, 0, 0, 1)
    assert (stats.finished, stats.duplicates, stats.retried) == (4, 1, 1)
    assert stats.p50_seconds is not None
    assert stats.p99_seconds is not None
    assert 0 < stats.p50_seconds <= stats.p99_seconds


def test_every_effect_has_its_dedup_row_and_a_job_without_a_key_has_one_of_its_own(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    keyless = enqueue("mixed", {"ending": "done"})
    enqueue("mixed", {"ending": "done"}, dedup_key="order:7")
    crew.drain()
    assert observer.dedup_keys() == [("mixed", f"job#{keyless.id}"), ("mixed", "order:7")]


def test_with_natural_keys_only_a_job_without_a_key_leaves_no_row(
    crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    enqueue("mixed", {"ending": "done"})
    enqueue("mixed", {"ending": "done"}, dedup_key="order:7")
    crew.drain(natural_keys_only=True)
    assert observer.dedup_keys() == [("mixed", "order:7")]
    assert observer.effects() == ["done", "done"]
