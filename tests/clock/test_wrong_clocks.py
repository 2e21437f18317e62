"""Processes whose wall clock is an hour wrong: due times, leases, backoff and ages follow the clock of the database."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue import JobSession
from tests.proofs.app import QUEUE
from tests.worker.test_leases import LEASE, watch_leases

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import ClaimedJob, EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.process import WorkerProcess

_HALF_AN_HOUR = timedelta(minutes=30)
"""Less than the clocks are wrong, and far more than a test lasts."""
_ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[-3600, 3600], ids=["an hour behind", "an hour ahead"])
def clock(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def command(database_url: str, clock: int) -> Callable[..., Any]:
    """A function that runs the command line under the wrong clock; the answer is what it printed as JSON."""

    def call(*arguments: str) -> Any:
        bent = [sys.executable, "-m", "tests.clock.shift", str(clock), "sa_jobqueue.cli", *arguments]
        ran = subprocess.run([*bent, "--url", database_url, "--json"], cwd=_ROOT, check=True, stdout=subprocess.PIPE)
        return json.loads(ran.stdout)

    return call


def test_the_clock_of_these_processes_is_wrong(clock: int, observer: Observer) -> None:
    code = "import datetime, time; print(datetime.datetime.now(datetime.UTC).timestamp(), time.time())"
    bent = [sys.executable, "-m", "tests.clock.shift", str(clock), "timeit", "-n1", "-r1", code]
    said = subprocess.run(bent, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert [float(at) - _now(observer).timestamp() for at in said[:2]] == pytest.approx([clock, clock], abs=900)


def test_a_delay_counts_from_the_enqueue_by_the_databases_clock(
    command: Callable[..., Any], observer: Observer
) -> None:
    before = _now(observer)
    made = command("enqueue", "mark", "--queue", QUEUE, "--delay", "1800")
    row = _row(observer, made["id"])
    assert row.status == "scheduled"
    assert before <= row.enqueued_at <= _now(observer)
    assert before <= row.visible_at - _HALF_AN_HOUR <= _now(observer)


def test_a_worker_starts_a_delayed_job_when_it_is_due_and_leaves_one_alone_that_is_not(
    clock: int,
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    later = enqueue("mark", {"name": "later"}, delay=_HALF_AN_HOUR)
    soon = enqueue("hold", {"name": "soon"}, delay=0.5)
    due = _row(observer, soon.id).visible_at
    worker = start_process(clock=clock)
    worker.expect(f"holding {soon.id}")
    assert _row(observer, soon.id).claimed_at >= due
    worker.go_on()
    worker.expect(f"RunEnded {soon.id} done")
    assert worker.said("RunStarted") == [soon.id]
    assert observer.state(later.id) == "scheduled"


def test_the_lease_of_a_running_job_is_never_in_the_past_though_others_sweep(
    clock: int,
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    job = enqueue("hold", {"name": "only"})
    worker = start_process(clock=clock, lease=LEASE)
    worker.expect(f"holding {job.id}")
    sweepers = [start_process(), start_process(clock=-clock)]
    watch_leases(observer, job)
    worker.go_on()
    worker.expect(f"RunEnded {job.id} done")
    assert [sweeper.said("RunStarted") for sweeper in sweepers] == [[], []]


def test_a_live_lease_of_somebody_else_is_left_alone_and_one_that_ran_out_is_taken_over(
    clock: int,
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
) -> None:
    live, lost = enqueue("mark", {"name": "live"}), enqueue("mark", {"name": "lost"})
    _claim(sessionmaker, visibility_timeout=_HALF_AN_HOUR)
    expiry = _claim(sessionmaker, visibility_timeout=0.5).lease_expires_at
    worker = start_process(clock=clock)
    worker.expect(f"RunEnded {lost.id} done")
    assert _now(observer) >= expiry
    assert worker.said("RunStarted") == [lost.id]
    assert (observer.state(live.id), _row(observer, live.id).attempt) == ("claimed", 1)


def test_a_failed_job_waits_for_its_backoff_by_the_databases_clock(
    clock: int, start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    job = enqueue("hold_then_fail")
    worker = start_process(clock=clock, backoff=1800)
    worker.expect(f"holding {job.id}")
    before = _now(observer)
    worker.go_on()
    worker.expect(f"RunEnded {job.id} retried")
    assert before <= _row(observer, job.id).visible_at - _HALF_AN_HOUR <= _now(observer)


def test_the_age_of_the_oldest_job_is_reckoned_by_the_databases_clock(
    command: Callable[..., Any], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    job = enqueue("mark", {"name": "old"})
    (queue,) = command("stats")["queues"]
    assert 0 <= queue["lag_seconds"] <= (_now(observer) - _row(observer, job.id).visible_at).total_seconds()


def _now(observer: Observer) -> datetime:
    return observer.scalar("SELECT clock_timestamp()")


def _row(observer: Observer, job_id: int) -> Any:
    row = observer.job(job_id)
    assert row is not None
    return row


def _claim(factory: sessionmaker[Session], **options: Any) -> ClaimedJob:
    with factory.begin() as session:
        claimed = JobSession(session).claim(QUEUE, **options)
    assert claimed is not None
    return claimed
