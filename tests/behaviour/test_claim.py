"""A claim hands out the right rows, exactly as many as were asked for, and plain values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import OperationalError

from sa_jobqueue import InvalidArgument, NewJob, UnsupportedDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

# Under these the planner once ran the sub-select of an UPDATE ... WHERE id IN (...) once for each row of the table.
UNLUCKY_PLANNER = ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize")


def test_an_empty_queue_gives_none(queue: Client) -> None:
    assert queue.claim() is None
    assert queue.claim_many(limit=5) == []


def test_a_queue_hands_out_its_own_jobs_only(queue: Client) -> None:
    queue.enqueue("t", queue="mail")
    assert queue.claim("billing") is None
    assert queue.claim("mail") is not None


@pytest.mark.parametrize("planner_is_unlucky", [False, True])
@pytest.mark.parametrize("limit", [1, 3])
def test_a_claim_changes_as_many_rows_as_it_returns(
    *, limit: int, planner_is_unlucky: bool, queue: Client, observer: Observer
) -> None:
    queue.enqueue_many([NewJob("t")] * 200)
    queue.commit()
    observer.all("ANALYZE jobqueue_job")
    for name in UNLUCKY_PLANNER if planner_is_unlucky else ():
        queue.execute(f"SET enable_{name} = off")

    claimed = queue.claim_many(limit=limit)
    queue.commit()

    assert len(claimed) == len({job.id for job in claimed}) == limit
    assert observer.count("claimed") == limit


def test_the_smallest_priority_comes_first_and_then_the_longest_runnable(queue: Client) -> None:
    late, urgent, early = (
        queue.enqueue("t", priority=1, run_at=datetime(2020, 1, 2, tzinfo=UTC)).id,
        queue.enqueue("t", priority=0).id,
        queue.enqueue("t", priority=1, run_at=datetime(2020, 1, 1, tzinfo=UTC)).id,
    )
    assert [job.id for job in queue.claim_many(limit=3)] == [urgent, early, late]


def test_an_expired_lease_of_top_priority_goes_before_fresh_jobs(queue: Client, observer: Observer) -> None:
    lost = queue.enqueue("t", priority=-1).id
    queue.claim()
    queue.enqueue_many([NewJob("t", priority=9)] * 50)
    queue.commit()
    observer.make_due(lost)

    claimed = queue.claim_many(limit=10)

    assert len(claimed) == 10
    assert (claimed[0].id, claimed[0].requeued, claimed[0].attempt) == (lost, True, 2)
    assert not any(job.requeued for job in claimed[1:])


def test_a_job_that_fails_without_delay_does_not_overtake_waiting_ones(queue: Client) -> None:
    failing = queue.enqueue("t").id
    waiting = [job.id for job in queue.enqueue_many([NewJob("t")] * 20)]
    order = []
    while len(order) < 23:
        job = queue.claim()
        order.append(job.id)
        queue.fail(job, "x", retry_in=0) if job.id == failing else queue.ack(job)
    assert set(waiting) < set(order[: 1 + len(waiting) + 1])
    assert order.count(failing) == 3


def test_due_and_expired_jobs_are_claimed_without_a_sweep(queue: Client, observer: Observer) -> None:
    due, lost = queue.enqueue("t", delay=60).id, queue.enqueue("t").id
    queue.claim()
    queue.enqueue("t", delay=60)
    queue.commit()
    observer.make_due(due)
    observer.make_due(lost)

    assert {(job.id, job.requeued) for job in queue.claim_many(limit=5)} == {(due, False), (lost, True)}


def test_a_lease_that_ran_out_on_the_last_attempt_is_buried_and_the_next_job_is_claimed(
    queue: Client, observer: Observer
) -> None:
    poison = queue.enqueue("t", max_attempts=1).id
    queue.claim(worker="w")
    behind = [queue.enqueue("t").id, queue.enqueue("t").id]
    queue.commit()
    observer.make_due(poison)

    claimed = queue.claim_many(limit=2)
    queue.commit()

    assert [job.id for job in claimed] == behind
    (grave,) = observer.dead(poison)
    assert (grave.reason, grave.attempt, grave.errors[0]["worker"]) == ("lease_expired", 1, "w")


def test_the_lease_runs_from_the_claiming_statement_not_from_the_transaction(queue: Client) -> None:
    queue.enqueue("t")
    queue.execute("SELECT pg_sleep(0.3)")
    job = queue.claim(visibility_timeout=60)
    ((began,),) = queue.execute("SELECT now()")
    assert job.lease_expires_at - job.claimed_at == timedelta(seconds=60)
    assert job.claimed_at - began >= timedelta(seconds=0.3)


def test_a_claimed_job_is_a_frozen_value_that_outlives_its_session(queue: Client) -> None:
    queue.enqueue("t", {"n": [1]})
    job = queue.claim()
    queue.rollback()
    queue.close()
    assert (job.args, job.attempt) == ({"n": [1]}, 1)
    with pytest.raises(FrozenInstanceError):
        job.token = 9


def test_arguments_changed_by_a_handler_are_not_stored(queue: Client) -> None:
    queue.enqueue("t", {"n": []})
    job = queue.claim()
    job.args["n"].append(1)
    queue.fail(job, "x", retry_in=0)
    assert queue.claim().args == {"n": []}


@pytest.mark.parametrize("bad", [0, -1, float("nan"), timedelta(days=40_000), "30"])
def test_a_visibility_timeout_that_is_no_span_is_refused(bad: object, queue: Client) -> None:
    with pytest.raises(InvalidArgument, match="visibility_timeout"):
        queue.claim(visibility_timeout=bad)


def test_autocommit_is_refused_by_name_because_it_drops_the_row_lock(clients: Callable[..., Client]) -> None:
    queue = clients(isolation_level="AUTOCOMMIT")
    queue.enqueue("t")
    with pytest.raises(UnsupportedDatabase, match="AUTOCOMMIT"):
        queue.claim()


def test_a_claim_from_an_old_snapshot_gets_a_retryable_error_and_loses_nothing(
    clients: Callable[..., Client], other: Client, observer: Observer
) -> None:
    first = other.enqueue("t").id
    other.commit()
    reader = clients(isolation_level="REPEATABLE READ")
    reader.execute("SELECT count(*) FROM jobqueue_job")
    other.snooze(other.claim(), 0)
    other.commit()

    with pytest.raises(OperationalError, match="could not serialize access"):
        reader.claim()
    reader.rollback()

    assert observer.job(first).attempt == 0
    assert reader.claim().id == first
