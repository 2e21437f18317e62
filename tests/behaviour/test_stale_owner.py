"""Who lost the lease changes nothing, is told so, and disturbs nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import CommitRefused, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue import ClaimedJob
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def _swept(client: Client) -> None:
    assert client.sweep().requeued == 1


def _claimed_again(client: Client) -> None:
    assert client.claim(visibility_timeout=600, worker="new").requeued


def _swept_and_claimed_again(client: Client) -> None:
    client.sweep()
    client.claim(visibility_timeout=600, worker="new")


def _settled(client: Client) -> None:
    client.ack(client.claim())


def _cancelled(client: Client) -> None:
    client.cancel(1)


def _cancelled_and_redriven(client: Client) -> None:
    client.cancel(1)
    client.redrive(1)


MEANWHILE = [_swept, _claimed_again, _swept_and_claimed_again, _settled, _cancelled, _cancelled_and_redriven]
DEEDS: dict[str, Callable[[Client, ClaimedJob], object]] = {
    "ack": lambda queue, job: queue.ack(job),
    "suppress": lambda queue, job: queue.suppress(job),
    "fail": lambda queue, job: queue.fail(job, "late"),
    "release": lambda queue, job: queue.release(job),
    "snooze": lambda queue, job: queue.snooze(job, 60),
    "reject": lambda queue, job: queue.reject(job, "late"),
}
EVERYTHING = "SELECT j::text FROM jobqueue_job j UNION ALL SELECT d::text FROM jobqueue_dead_letter d"


@pytest.fixture
def stale(queue: Client, observer: Observer) -> ClaimedJob:
    """A job whose lease ran out a second ago."""
    queue.enqueue("t")
    queue.commit()
    claimed = queue.claim(worker="old")
    queue.commit()
    observer.make_due(claimed.id)
    return claimed


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_stale_owner_changes_nothing_is_told_and_cannot_commit(
    deed: str, meanwhile: Callable[[Client], None], stale: ClaimedJob, queue: Client, other: Client, observer: Observer
) -> None:
    meanwhile(other)
    other.commit()
    before = observer.all(EVERYTHING)

    queue.execute("INSERT INTO effect (name) VALUES ('late')")
    with pytest.raises(LeaseLost) as lost:
        DEEDS[deed](queue, stale)
    with pytest.raises(CommitRefused):
        queue.commit()
    queue.rollback()

    assert lost.value.job_ids == (stale.id,)
    assert observer.all(EVERYTHING) == before
    assert observer.effects() == []


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_stale_heartbeat_reports_the_loss_and_extends_nothing(
    meanwhile: Callable[[Client], None], stale: ClaimedJob, queue: Client, other: Client, observer: Observer
) -> None:
    meanwhile(other)
    other.commit()
    before = observer.all(EVERYTHING)
    assert queue.heartbeat(stale, visibility_timeout=3600) == [stale]
    queue.commit()
    assert observer.all(EVERYTHING) == before


@pytest.mark.parametrize("deed", DEEDS)
def test_an_expired_lease_that_nobody_took_is_still_the_owners(
    deed: str, stale: ClaimedJob, queue: Client, observer: Observer
) -> None:
    if deed == "suppress":
        queue.once(stale)
    DEEDS[deed](queue, stale)
    queue.commit()
    assert observer.count("claimed") == 0


def test_the_error_names_the_deed_and_what_to_do(stale: ClaimedJob, queue: Client, other: Client) -> None:
    other.cancel(stale.id)
    other.commit()
    with pytest.raises(LeaseLost, match=r"lease lost on job 1: reject changed no row.*Roll back"):
        queue.reject(stale, "x")
