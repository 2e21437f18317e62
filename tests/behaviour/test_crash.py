"""A process that is killed between claim and acknowledgement loses its work, and nobody loses the job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import OperationalError

from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

ROOT = Path(__file__).parents[2]
EXPIRED = "SELECT visible_at <= clock_timestamp() FROM jobqueue_job"


def _kill_a_service_after_its_claim(kind: str, url: str, visibility_timeout: float) -> int:
    command = [sys.executable, "-m", "tests.behaviour.crashing_service", kind, url, str(visibility_timeout)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        claimed = service.stdout.readline()
        service.kill()
    return int(claimed)


def test_a_killed_owners_job_comes_back_after_the_visibility_timeout_and_not_before(
    kind: str, database_url: str, queue: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("t").id
    queue.commit()
    assert _kill_a_service_after_its_claim(kind, database_url, visibility_timeout=3) == job_id

    assert queue.claim() is None
    assert queue.sweep().total == 0
    queue.rollback()
    assert not observer.scalar(EXPIRED), "the machine was too slow to look before the lease expired"
    wait_until(lambda: observer.scalar(EXPIRED), what="the lease to expire")

    job = queue.claim()
    assert (job.id, job.attempt, job.token, job.requeued) == (job_id, 2, 2, True)
    queue.ack(job)
    queue.commit()
    assert observer.effects() == []


def test_a_poison_job_that_kills_its_owner_every_time_ends_as_a_dead_letter(
    kind: str, database_url: str, queue: Client, observer: Observer
) -> None:
    poison = queue.enqueue("t", max_attempts=2).id
    queue.commit()
    for _ in range(2):
        assert _kill_a_service_after_its_claim(kind, database_url, visibility_timeout=60) == poison
        observer.make_due(poison)
    good = queue.enqueue("t").id

    assert queue.claim().id == good
    queue.commit()
    (grave,) = observer.dead(poison)
    assert (grave.reason, grave.attempt) == ("lease_expired", 2)
    assert [entry["worker"] for entry in grave.errors] == ["doomed", "doomed"]


def test_a_killed_owner_inside_one_transaction_frees_the_job_at_once(
    queue: Client, other: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("t").id
    queue.commit()
    ((pid,),) = queue.execute("SELECT pg_backend_pid()")
    queue.claim()
    observer.all("SELECT pg_terminate_backend(:pid, 10000)", pid=pid)

    again = other.claim()
    assert (again.id, again.attempt) == (job_id, 1)
    with pytest.raises(OperationalError):
        queue.execute("SELECT 1")
    queue.rollback()
