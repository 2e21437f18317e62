"""The sweep promotes, re-queues and buries; it skips what others hold and may run anywhere at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import DBAPIError

from sa_jobqueue import NewJob, Swept

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

BREAK_THE_CONNECTION = """
CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER hang_up AFTER {event} DEFERRABLE INITIALLY {when}
FOR EACH ROW EXECUTE FUNCTION hang_up();
"""


def _make_all_due(observer: Observer) -> None:
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp() - interval '1 second'")


def test_one_sweep_promotes_requeues_and_buries_in_every_queue(queue: Client, observer: Observer) -> None:
    for name in ("a", "b"):
        queue.enqueue_many([NewJob("t", queue=name)] * 2 + [NewJob("t", queue=name, max_attempts=1)])
        queue.claim_many(name, limit=3)
        queue.enqueue_many([NewJob("t", queue=name, delay=60)] * 3)
    queue.commit()
    _make_all_due(observer)

    assert queue.sweep() == Swept(promoted=6, requeued=4, dead=2)
    queue.commit()

    assert (observer.count("queued"), observer.count("scheduled"), observer.count("claimed")) == (10, 0, 0)
    assert queue.sweep().total == 0


def test_what_is_not_due_stays(queue: Client, observer: Observer) -> None:
    queue.enqueue_many([NewJob("t"), NewJob("t", delay=60)])
    queue.claim(visibility_timeout=60)
    assert queue.sweep() == Swept()
    queue.commit()
    assert (observer.count("claimed"), observer.count("scheduled")) == (1, 1)


def test_a_sweep_moves_no_more_than_its_limit_in_the_queues_it_is_given(queue: Client, observer: Observer) -> None:
    queue.enqueue_many([NewJob("t", queue=name, delay=60) for name in ("a", "b") for _ in range(5)])
    queue.commit()
    _make_all_due(observer)
    assert queue.sweep(3, queues=["a"]).promoted == 3
    assert queue.sweep(3).promoted == 2 + 3


def test_a_requeued_job_remembers_the_lost_worker_and_its_place(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t").id
    queue.claim(worker="w")
    queue.commit()
    observer.make_due(job_id)
    expired_at = observer.job(job_id).visible_at
    queue.sweep()
    queue.commit()

    row = observer.job(job_id)
    (entry,) = row.errors
    assert (entry["attempt"], entry["error"], entry["worker"]) == (1, "lease expired", "w")
    assert (row.status, row.attempt, row.visible_at) == ("queued", 1, expired_at)


def test_rows_that_others_hold_are_skipped_without_waiting(queue: Client, other: Client, observer: Observer) -> None:
    queue.enqueue_many([NewJob("t", delay=60)] * 3)
    queue.commit()
    _make_all_due(observer)
    queue.claim()

    other.execute("SET LOCAL lock_timeout = '5s'")
    assert other.sweep().promoted == 2


def test_two_sweeps_at_once_move_each_row_once(queue: Client, other: Client, observer: Observer) -> None:
    queue.enqueue_many([NewJob("t")] * 6)
    queue.claim_many(limit=6)
    queue.commit()
    _make_all_due(observer)
    assert queue.sweep(4).requeued == 4
    assert other.sweep().requeued == 2
    queue.commit()
    other.commit()
    assert observer.scalar("SELECT sum(count) FROM jobqueue_rollup WHERE metric = 'requeued'") == 6


@pytest.mark.parametrize("when", ["IMMEDIATE", "DEFERRED"], ids=["between", "during commit"])
@pytest.mark.parametrize("event", ["INSERT ON jobqueue_dead_letter", "DELETE ON jobqueue_job"])
@pytest.mark.parametrize("deed", ["fail", "sweep"])
def test_a_connection_that_breaks_during_a_burial_leaves_the_job_in_one_place(
    deed: str, event: str, when: str, queue: Client, other: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("t", max_attempts=1).id
    job = queue.claim()
    queue.commit()
    observer.make_due(job_id)
    observer.all(BREAK_THE_CONNECTION.format(event=event, when=when))

    def bury() -> None:
        queue.fail(job, "last") if deed == "fail" else queue.sweep()
        queue.commit()

    with pytest.raises(DBAPIError):
        bury()
    queue.rollback()
    assert (observer.state(job_id), observer.dead(job_id)) == ("claimed", [])

    observer.all("DROP FUNCTION hang_up CASCADE")
    assert other.sweep().dead == 1
    other.commit()
    assert (observer.state(job_id), len(observer.dead(job_id))) == (None, 1)


@pytest.mark.parametrize(("passed", "least", "most"), [(0, 0, 5), (25, 90, 160), (75, 340, 410), (100, 500, 500)])
def test_leases_that_ran_out_together_are_requeued_spread_over_the_jitter(
    passed: int, least: int, most: int, queue: Client, observer: Observer
) -> None:
    queue.enqueue_many([NewJob("t")] * 500)
    queue.claim_many(limit=500)
    queue.commit()
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp() - :s * interval '1 second'", s=passed)
    swept = queue.sweep(requeue_jitter=100)
    queue.commit()
    assert least <= swept.requeued <= most
    assert queue.sweep().requeued == 500 - swept.requeued


def test_the_jitter_delays_neither_what_is_due_nor_another_claim(queue: Client, observer: Observer) -> None:
    queue.enqueue("t", delay=60)
    lost = queue.enqueue("t", queue="other").id
    queue.claim("other")
    queue.commit()
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp() - interval '1 millisecond'")
    assert queue.sweep(requeue_jitter=1_000_000).promoted == 1
    assert queue.claim("other").id == lost
