"""A worker process that was paused past its lease wakes up while another one owns the job."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.process import WorkerProcess

_CLAIM = "SELECT attempt, token, claimed_by, claimed_at, errors FROM jobqueue_job WHERE id = :id"


@pytest.mark.parametrize(("task", "args"), [("hold", {"name": "only"}), ("hold_then_fail", {})], ids=["acks", "fails"])
def test_a_zombie_reports_a_lost_lease_commits_nothing_and_does_not_touch_the_new_owners_run(
    task: str,
    args: dict[str, str],
    start_process: Callable[..., WorkerProcess],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
) -> None:
    zombie = start_process(name="zombie", lease=1.0)
    job = enqueue(task, args)
    zombie.expect(f"holding {job.id}")
    zombie.signal(signal.SIGSTOP)
    owner = start_process(name="owner", lease=30)
    owner.expect(f"holding {job.id}")
    before = observer.all(_CLAIM, id=job.id)

    zombie.go_on()
    zombie.signal(signal.SIGCONT)
    zombie.expect(f"LeaseWasLost {job.id}")

    assert observer.all(_CLAIM, id=job.id) == before
    assert (before[0].attempt, before[0].token, before[0].claimed_by) == (2, 2, "owner")
    assert observer.effects() == []


def test_a_zombie_goes_on_with_other_jobs_and_the_new_owner_has_the_only_effect(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    zombie = start_process(lease=1.0)
    job = enqueue("hold", {"name": "only"})
    zombie.expect(f"holding {job.id}")
    zombie.signal(signal.SIGSTOP)
    owner = start_process(lease=30)
    owner.expect(f"holding {job.id}")

    zombie.signal(signal.SIGCONT)
    zombie.expect(f"LeaseWasLost {job.id}")  # although its handler still hangs
    other = enqueue("mark", {"name": "other"})
    zombie.expect(f"RunEnded {other.id} done")
    owner.go_on()
    owner.expect(f"RunEnded {job.id} done")
    assert sorted(observer.effects()) == ["only", "other"]


def test_a_worker_that_comes_back_under_the_name_of_a_dead_one_does_not_keep_its_jobs_alive(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    first = start_process(name="pod-0", lease=1.0)
    job = enqueue("hold", {"name": "only"})
    first.expect(f"holding {job.id}")
    first.kill()

    second = start_process(name="pod-0", lease=1.0)
    second.expect(f"holding {job.id}")
    second.go_on()
    second.expect(f"RunEnded {job.id} done")
    assert observer.effects() == ["only"]


def test_a_job_that_kills_its_process_starts_as_often_as_it_may_and_ends_as_a_dead_letter(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    poison = enqueue("die", max_attempts=3)
    for n in range(5):
        enqueue("mark", {"name": str(n)})

    starts, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:  # a supervisor starts the worker again
        worker = start_process(lease=1.0, until_empty=True)
        code = worker.ended(timeout=30)
        starts += worker.said("RunStarted").count(poison.id)

    assert (code, starts) == (0, 3)
    (dead,) = observer.dead(poison.id)
    assert (dead.reason, [entry["error"] for entry in dead.errors]) == ("lease_expired", ["lease expired"] * 3)
    assert sorted(observer.effects()) == [str(n) for n in range(5)]
