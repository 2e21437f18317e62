"""One key, one effect: whichever way a service is written, and whoever comes second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import CommitRefused, DuplicateEffect, InvalidArgument, NoSuchEffect
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

KEYS_CANNOT_BE_WRITTEN = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'disk full'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON jobqueue_dedup_key FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def _enqueue_twice(queue: Client) -> None:
    queue.enqueue("charge", dedup_key="order:7")
    queue.enqueue("charge", dedup_key="order:7")
    queue.commit()


def _effect(queue: Client, name: str) -> None:
    queue.execute("INSERT INTO effect (name) VALUES (:name)", name=name)


def test_a_service_that_asks_once_has_one_effect_and_no_error(queue: Client, observer: Observer) -> None:
    _enqueue_twice(queue)
    answers = []
    while job := queue.claim():
        if queue.once(job):
            _effect(queue, f"job {job.id}")
        answers.append(queue.ack(job).duplicate)
        queue.commit()

    assert answers == [False, True]
    assert observer.effects() == ["job 1"]


def test_a_service_that_looks_at_the_claim_suppresses_the_second_job(queue: Client, observer: Observer) -> None:
    _enqueue_twice(queue)
    while job := queue.claim():
        if job.duplicate:
            assert queue.suppress(job).duplicate
        else:
            _effect(queue, f"job {job.id}")
            queue.ack(job)
        queue.commit()

    assert observer.effects() == ["job 1"]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_a_job_without_an_effect_cannot_be_suppressed_away(queue: Client, observer: Observer) -> None:
    queue.enqueue("t")
    job = queue.claim()

    with pytest.raises(NoSuchEffect, match="no effect to be a duplicate of"):
        queue.suppress(job)

    queue.ack(job)
    queue.commit()
    assert observer.scalar("SELECT count(*) FROM jobqueue_dedup_key") == 1


def test_a_naive_service_is_refused_its_second_effect(queue: Client, observer: Observer) -> None:
    _enqueue_twice(queue)
    _effect(queue, "first")
    queue.ack(queue.claim())
    queue.commit()
    second = queue.claim()
    queue.commit()

    _effect(queue, "second")
    with pytest.raises(DuplicateEffect, match="order:7"):
        queue.ack(second)
    queue.rollback()
    queue.suppress(second)
    queue.commit()

    assert observer.effects() == ["first"]
    assert observer.scalar("SELECT count(*) FROM jobqueue_job") == 0


def test_of_two_transactions_at_once_the_second_waits_and_learns_that_it_is_one(
    queue: Client, other: Client, observer: Observer
) -> None:
    _enqueue_twice(queue)
    first, second = queue.claim(), other.claim()
    _effect(queue, "first")
    queue.ack(first)
    _effect(other, "second")

    with ThreadPoolExecutor(1) as pool:
        acking = pool.submit(other.ack, second)
        wait_until(observer.lock_waits, what="the second ack to wait for the first")
        queue.commit()
        with pytest.raises(DuplicateEffect):
            acking.result(timeout=10)
    with pytest.raises(CommitRefused):
        other.commit()
    other.rollback()

    assert observer.effects() == ["first"]
    assert observer.state(second.id) == "queued"


def test_of_two_transactions_at_once_the_second_may_go_on_when_the_first_gives_up(
    queue: Client, other: Client, observer: Observer
) -> None:
    _enqueue_twice(queue)
    first, second = queue.claim(), other.claim()
    assert queue.once(first)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(other.once, second)
        wait_until(observer.lock_waits, what="the second once to wait for the first")
        queue.rollback()
        assert asking.result(timeout=10)
    _effect(other, "second")
    assert not other.ack(second).duplicate
    other.commit()

    assert observer.effects() == ["second"]


def test_a_transaction_that_fails_between_effect_and_dedup_row_leaves_neither(
    queue: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("charge", dedup_key="order:7").id
    queue.commit()
    observer.all(KEYS_CANNOT_BE_WRITTEN)
    job = queue.claim()
    _effect(queue, "charged")
    with pytest.raises(DBAPIError, match="disk full"):
        queue.ack(job)
    queue.rollback()

    assert (observer.effects(), observer.dedup_keys()) == ([], [])
    assert observer.state(job_id) == "queued"


def test_a_dedup_row_without_its_effect_is_never_seen(queue: Client, observer: Observer) -> None:
    queue.enqueue("charge", dedup_key="order:7")
    queue.ack(queue.claim())
    with pytest.raises(DBAPIError, match="division by zero"):
        queue.execute("SELECT 1/0")
    queue.rollback()
    assert observer.dedup_keys() == []


def test_the_same_key_of_another_task_is_another_effect(queue: Client, observer: Observer) -> None:
    for task in ("charge", "refund"):
        queue.enqueue(task, dedup_key="order:7")
        queue.ack(queue.claim())
    queue.commit()
    assert observer.dedup_keys() == [("charge", "order:7"), ("refund", "order:7")]


def test_once_in_a_scope_of_its_own_says_nothing_about_the_jobs_own_key(queue: Client) -> None:
    _enqueue_twice(queue)
    queue.ack(queue.claim())
    second = queue.claim()
    assert queue.once("order:7", scope="mail")
    assert not queue.once(second, scope="mail")
    with pytest.raises(DuplicateEffect):
        queue.ack(second)


def test_a_bare_key_needs_a_scope(queue: Client) -> None:
    with pytest.raises(InvalidArgument, match="scope"):
        queue.once("order:7")


def test_a_redelivery_of_the_job_that_wrote_the_key_is_no_duplicate_of_another(
    queue: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("charge", dedup_key="order:7").id
    queue.once(queue.claim())
    queue.commit()
    observer.make_due(job_id)

    again = queue.claim()
    assert again.duplicate
    assert not queue.once(again)
    assert not queue.ack(again).duplicate
    queue.commit()
