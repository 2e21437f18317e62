"""Many sessions at once: nobody gets another's job, nobody waits for another's row, nothing is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, cycle
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import OperationalError

from sa_jobqueue import NewJob

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def _enqueue_hundred(queue: Client) -> set[int]:
    made = queue.enqueue_many([NewJob("t")] * 100)
    queue.commit()
    return {job.id for job in made}


def _together(work: Sequence[Callable[[], object]]) -> list[object]:
    """Start all at the same moment, each in its thread; the first error is raised."""
    gate = threading.Barrier(len(work))

    def one(task: Callable[[], object]) -> object:
        gate.wait(timeout=10)
        return task()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(one, work, timeout=60))


@pytest.mark.parametrize("claimers", [1, 2, 4])
def test_claimers_that_hold_all_their_rows_never_wait_for_each_other(
    claimers: int, queue: Client, clients: Callable[..., Client]
) -> None:
    jobs = _enqueue_hundred(queue)
    sessions = [clients() for _ in range(claimers)]
    for session in sessions:
        session.execute("SET lock_timeout = '5s'")  # a wait would be one for ever: all run in this one thread

    got = []
    for session in cycle(sessions):
        job = session.claim()
        if job is None:
            break
        got.append(job.id)
    assert len(got) == len(set(got)) == 100
    assert set(got) == jobs


@pytest.mark.parametrize("claimers", [3, 4])
def test_no_job_is_claimed_twice_and_nobody_lines_up_for_a_row(
    claimers: int, queue: Client, clients: Callable[..., Client], observer: Observer
) -> None:
    jobs = _enqueue_hundred(queue)
    sessions = [clients() for _ in range(claimers)]
    done = threading.Event()

    def drain(session: Client) -> list[int]:
        got = []
        while job := session.claim():
            got.append(job.id)
            session.ack(job)
            session.commit()
        return got

    def watch() -> list[object]:
        seen: list[object] = []
        while not done.is_set():
            seen += observer.lines_at_rows()
        return seen

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        got = _together([lambda session=session: drain(session) for session in sessions])
        done.set()
        waits = watching.result(timeout=10)
    assert sorted(chain.from_iterable(got)) == sorted(jobs)
    assert waits == []


def test_a_row_that_one_poller_skipped_is_at_once_available_to_another(queue: Client, other: Client) -> None:
    job_id = queue.enqueue("t").id
    queue.commit()
    other.execute("SET lock_timeout = '5s'")  # a wait would be one for ever
    assert queue.claim().id == job_id
    assert other.claim() is None

    queue.rollback()

    assert other.claim().id == job_id


def test_a_claim_locks_no_row_that_it_does_not_return(queue: Client, other: Client, observer: Observer) -> None:
    queue.enqueue_many([NewJob("t")] * 10 + [NewJob("t", delay=60)] * 10)
    queue.commit()
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp() WHERE status = 'scheduled'")
    mine = queue.claim_many(limit=3)
    theirs = other.claim_many(limit=100)
    assert (len(mine), len(theirs)) == (3, 17)


def test_bulk_enqueues_of_the_same_keys_in_opposite_order_do_not_deadlock(
    clients: Callable[..., Client], observer: Observer
) -> None:
    keys = [f"key {number:03}" for number in range(200)]
    enough = threading.Event()

    def enqueue(session: Client, order: list[str]) -> None:
        for _ in range(5):
            session.enqueue_many(NewJob("t", unique_key=key) for key in order)
            session.commit()

    def work(session: Client) -> None:
        while not enough.is_set():
            for job in session.claim_many(limit=5):
                session.ack(job)
            session.sweep()
            session.commit()

    workers, up, down = [clients() for _ in range(4)], clients(), clients()
    with ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work, session) for session in workers]
        try:
            _together([lambda: enqueue(up, keys), lambda: enqueue(down, keys[::-1])])
        finally:
            enough.set()
    assert [one.result() for one in working] == [None] * 4
    duplicates = observer.all("SELECT unique_key FROM jobqueue_job GROUP BY 1 HAVING count(*) > 1")
    assert duplicates == []


def test_serializable_sessions_finish_every_job_once_when_they_retry(
    queue: Client, clients: Callable[..., Client], observer: Observer
) -> None:
    jobs = _enqueue_hundred(queue)
    sessions = [clients(isolation_level="SERIALIZABLE") for _ in range(4)]

    def drain(session: Client) -> None:
        while observer.scalar("SELECT count(*) FROM jobqueue_job"):
            try:
                for job in session.claim_many(limit=5):
                    session.execute("INSERT INTO effect (name) VALUES (:name)", name=str(job.id))
                    session.ack(job)
                session.commit()
            except OperationalError as error:
                assert "could not serialize access" in str(error)  # noqa: PT017 - the others are raised by the commit
                session.rollback()

    _together([lambda session=session: drain(session) for session in sessions])
    assert sorted(map(int, observer.effects())) == sorted(jobs)
