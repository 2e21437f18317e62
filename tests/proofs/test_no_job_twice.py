"""Many workers, one queue: no job runs twice, and nobody waits for anybody."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import JobSession, NewJob
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.proofs.process import WorkerProcess


def test_two_worker_processes_run_a_hundred_jobs_and_no_id_twice(
    start_process: Callable[..., WorkerProcess], sessionmaker: sessionmaker[Session], observer: Observer
) -> None:
    workers = [start_process(), start_process()]
    with sessionmaker.begin() as session:
        new = [NewJob("hold" if n < 2 else "mark", {"name": str(n)}, QUEUE) for n in range(100)]
        ids = [job.id for job in JobSession(session).enqueue_many(new)]

    # Each worker has one slot: both take part once each is in one of the two jobs that hold.
    wait_until(lambda: all(worker.said("holding") for worker in workers), what="a job in each worker")
    for worker in workers:
        worker.go_on()
    wait_until(lambda: observer.count("queued") + observer.count("claimed") == 0, timeout=30, what="an empty queue")

    started = [worker.said("RunStarted") for worker in workers]
    assert all(started)
    assert sorted(started[0] + started[1]) == ids
    assert sorted(map(int, observer.effects())) == list(range(100))
    assert len(observer.dedup_keys()) == 100


def test_a_row_that_one_poller_skipped_is_at_once_available_to_the_other(
    sessionmaker: sessionmaker[Session], enqueue: Callable[..., EnqueuedJob]
) -> None:
    first, second = enqueue("mark").id, enqueue("mark").id
    with sessionmaker() as one, sessionmaker() as other:
        held = JobSession(one).claim(QUEUE)
        passed_by = JobSession(other).claim(QUEUE)
        assert held is not None
        assert passed_by is not None
        assert (held.id, passed_by.id) == (first, second)
        assert JobSession(other).claim(QUEUE) is None

        one.rollback()
        again = JobSession(other).claim(QUEUE)

        assert again is not None
        assert (again.id, again.attempt) == (first, 1)


@pytest.mark.parametrize("claimers", [1, 2, 4])
def test_each_further_claimer_adds_its_own_claim_to_every_round_and_nobody_waits_for_a_lock(
    claimers: int, sessionmaker: sessionmaker[Session], observer: Observer
) -> None:
    rounds = 10
    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([NewJob("mark", queue=QUEUE)] * 40)
    everybody_holds_one, looked = Barrier(claimers + 1), Barrier(claimers + 1)

    def claim() -> list[int]:
        with sessionmaker() as session:
            return [_claim_and_hold(session, everybody_holds_one, looked) for _ in range(rounds)]

    with ThreadPoolExecutor(claimers) as pool:
        claiming = [pool.submit(claim) for _ in range(claimers)]
        waits = [_look(observer, everybody_holds_one, looked) for _ in range(rounds)]

    ids = [job_id for done in claiming for job_id in done.result()]
    assert len(set(ids)) == len(ids) == rounds * claimers
    assert waits == [[]] * rounds


def _claim_and_hold(session: Session, everybody_holds_one: Barrier, looked: Barrier) -> int:
    """Claim, and commit only when all have claimed; a claimer that waited for another's lock would never get there."""
    job = JobSession(session).claim(QUEUE)
    assert job is not None
    everybody_holds_one.wait(20)
    looked.wait(20)
    session.commit()
    return job.id


def _look(observer: Observer, everybody_holds_one: Barrier, looked: Barrier) -> list[object]:
    """Sample the lock waits while claims come in, up to the moment when everybody holds one."""
    waits = list(observer.lock_waits())
    everybody_holds_one.wait(20)
    waits += observer.lock_waits()
    looked.wait(20)
    return waits


def test_four_claimers_that_race_for_one_queue_never_line_up_for_a_row(
    sessionmaker: sessionmaker[Session], observer: Observer
) -> None:
    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([NewJob("mark", queue=QUEUE)] * 200)

    def claim_all() -> int:
        claimed = 0
        while True:
            with sessionmaker.begin() as session:
                found = len(JobSession(session).claim_many(QUEUE, limit=2))
            if not found:
                return claimed
            claimed += found

    with ThreadPoolExecutor(4) as pool:
        claiming = [pool.submit(claim_all) for _ in range(4)]
        samples = [observer.lines_at_rows()]
        while not all(done.done() for done in claiming):
            samples.append(observer.lines_at_rows())

    assert sum(done.result() for done in claiming) == 200
    assert [waits for waits in samples if waits] == []
