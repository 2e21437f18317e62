"""A session commits nothing that no live token covers, whatever its code swallows or rolls back in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import CommitRefused, DuplicateEffect, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue import ClaimedJob
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

_BEGIN = ["begin_nested", "begin_nested_on_the_connection"]


def _effect(queue: Client) -> None:
    queue.execute("INSERT INTO effect (name) VALUES ('done')")


@pytest.fixture
def job(queue: Client) -> ClaimedJob:
    """A job with a durable lease, as a worker has it."""
    queue.enqueue("t")
    queue.commit()
    claimed = queue.claim()
    queue.commit()
    return claimed


def _refused(queue: Client, observer: Observer, match: str) -> None:
    with pytest.raises(CommitRefused, match=match):
        queue.commit()
    queue.rollback()
    assert observer.effects() == []


def test_a_swallowed_lost_lease_cannot_commit(queue: Client, job: ClaimedJob, observer: Observer) -> None:
    observer.all("DELETE FROM jobqueue_job")
    _effect(queue)
    with pytest.raises(LeaseLost):
        queue.ack(job)
    _refused(queue, observer, "the lease of job 1 was lost before its ack")


def test_a_lease_lost_inside_a_savepoint_refuses_the_outer_commit_too(
    queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    observer.all("DELETE FROM jobqueue_job")
    _effect(queue)
    with pytest.raises(LeaseLost), queue.begin_nested():
        queue.ack(job)
    _refused(queue, observer, "lost before its ack")


def test_a_swallowed_duplicate_cannot_commit(queue: Client, job: ClaimedJob, observer: Observer) -> None:
    observer.all("INSERT INTO jobqueue_dedup_key (scope, key, job_id) VALUES ('t', 'job#1', 99)")
    _effect(queue)
    with pytest.raises(DuplicateEffect):
        queue.ack(job)
    _refused(queue, observer, "the effect of job 1 exists already")
    assert observer.state(job.id) == "claimed"


@pytest.mark.parametrize("begin", _BEGIN)
@pytest.mark.parametrize("end", ["rollback", "close"])
def test_an_ack_in_a_savepoint_that_ends_without_release_is_no_ack(
    begin: str, end: str, queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    _effect(queue)
    savepoint = getattr(queue, begin)()
    queue.ack(job)
    getattr(savepoint, end)()
    _refused(queue, observer, "the ack of job 1 was made in a savepoint that was rolled back")
    assert observer.state(job.id) == "claimed"


@pytest.mark.parametrize("begin", _BEGIN)
@pytest.mark.parametrize("end", ["rollback", "close"])
def test_a_claim_in_a_savepoint_that_ends_without_release_is_no_claim(
    begin: str, end: str, queue: Client, observer: Observer
) -> None:
    queue.enqueue("t")
    queue.commit()
    savepoint = getattr(queue, begin)()
    queue.claim()
    getattr(savepoint, end)()
    _effect(queue)
    _refused(queue, observer, "the claim of job 1 was made in a savepoint that was rolled back")
    assert observer.count("queued") == 1


@pytest.mark.parametrize("outer", _BEGIN)
@pytest.mark.parametrize("inner", _BEGIN)
def test_a_released_savepoint_falls_with_the_outer_one(
    outer: str, inner: str, queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    _effect(queue)
    savepoint = getattr(queue, outer)()
    with getattr(queue, inner)():
        queue.ack(job)
    savepoint.rollback()
    _refused(queue, observer, "the ack of job 1")


def test_a_fail_or_release_in_a_rolled_back_savepoint_did_not_happen(
    queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    for let_go in (queue.release, lambda owned: queue.fail(owned, "x"), lambda owned: queue.reject(owned, "x")):
        savepoint = queue.begin_nested()
        let_go(job)
        savepoint.rollback()
        _effect(queue)
        _refused(queue, observer, "was made in a savepoint that was rolled back")


@pytest.mark.parametrize("begin", _BEGIN)
def test_an_ack_in_a_released_savepoint_commits(begin: str, queue: Client, job: ClaimedJob, observer: Observer) -> None:
    with getattr(queue, begin)():
        _effect(queue)
        queue.ack(job)
    queue.commit()
    assert observer.effects() == ["done"]
    assert observer.state(job.id) is None


@pytest.mark.parametrize("begin", _BEGIN)
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_sibling_savepoint_may_fail(
    begin: str, when: str, queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    def ack_if(now: str) -> None:
        if now == when:
            with getattr(queue, begin)():
                queue.ack(job)

    for now in ("before", "between", "after"):
        ack_if(now)
        savepoint = getattr(queue, begin)()
        _effect(queue)
        savepoint.rollback()
    queue.commit()
    assert observer.effects() == []
    assert observer.state(job.id) is None


def test_commit_from_inside_a_savepoint_is_checked_as_well(queue: Client, job: ClaimedJob, observer: Observer) -> None:
    observer.all("DELETE FROM jobqueue_job")
    queue.begin_nested()
    _effect(queue)
    with pytest.raises(LeaseLost):
        queue.ack(job)
    _refused(queue, observer, "lost before its ack")


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_the_end_of_the_transaction_lifts_the_fence(
    end: str, queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    observer.all("DELETE FROM jobqueue_job")
    with pytest.raises(LeaseLost):
        queue.ack(job)
    getattr(queue, end)()
    queue.enqueue("t")
    queue.ack(queue.claim())
    _effect(queue)
    queue.commit()
    assert observer.effects() == ["done"]


def test_rolling_back_only_a_savepoint_does_not_lift_the_fence(
    queue: Client, job: ClaimedJob, observer: Observer
) -> None:
    observer.all("DELETE FROM jobqueue_job")
    with pytest.raises(LeaseLost):
        queue.ack(job)
    queue.begin_nested().rollback()
    _effect(queue)
    _refused(queue, observer, "lost before its ack")


def test_a_refused_commit_stays_refused_until_the_rollback(queue: Client, job: ClaimedJob, observer: Observer) -> None:
    observer.all("DELETE FROM jobqueue_job")
    with pytest.raises(LeaseLost):
        queue.ack(job)
    for _ in range(2):
        _effect(queue)
        with pytest.raises(CommitRefused):
            queue.commit()
    queue.rollback()
    assert observer.effects() == []


def test_sessions_of_a_rolled_back_test_suite_are_fenced_and_work(
    clients: Callable[..., Client], observer: Observer
) -> None:
    queue = clients(join_transaction_mode="create_savepoint")
    queue.enqueue("t")
    queue.commit()
    job = queue.claim()
    queue.commit()
    savepoint = queue.begin_nested()
    queue.ack(job)
    savepoint.rollback()
    with pytest.raises(CommitRefused):
        queue.commit()
    queue.rollback()
    queue.ack(job)
    queue.commit()
    assert observer.count("claimed") == 0
