"""A prune deletes what is too old, nothing else, a bounded batch at a time; and never a key that is still needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue import DuplicateEffect, InvalidArgument, Pruned, Retention
from sa_jobqueue.retention import MOST_PRUNED
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

MONTH = timedelta(days=30)
KEYS = Retention(dedup_keys=MONTH)

_LOG = "(job_id, queue, task, attempt, outcome, enqueued_at, finished_at) SELECT n, 'q', 't', 1, 'done', {at}, {at}"
_DEAD = """
    (job_id, queue, task, priority, attempt, max_attempts, token, enqueued_at, reason, died_at, redriven_at)
    SELECT n, 'q', 't', 0, 1, 1, 1, now(), 'failed', """
ROWS = {
    "dedup_keys": ("jobqueue_dedup_key", "(scope, key, created_at) SELECT 't', :age || n, {at}"),
    "job_log": ("jobqueue_job_log", _LOG),
    "rollup": ("jobqueue_rollup", "SELECT date_trunc('minute', {at}), 'q', 't' || n, 'done', -1, pg_backend_pid(), 1"),
    "open_dead_letters": ("jobqueue_dead_letter", _DEAD + "{at}, NULL"),
    "redriven_dead_letters": ("jobqueue_dead_letter", _DEAD + "now() - interval '1 year', {at}"),
}
"""Of each kind of rows, its table and how to make some."""


def _make(observer: Observer, what: str, count: int, age: str) -> None:
    table, rows = ROWS[what]
    made = rows.format(at="clock_timestamp() - CAST(:age AS interval)")
    observer.all(f"INSERT INTO {table} {made} FROM generate_series(1, {count}) AS n", age=age)


def _count(observer: Observer, what: str) -> int:
    return observer.scalar(f"SELECT count(*) FROM {ROWS[what][0]}")  # noqa: S608 - ours


def _prune_all(client: Client, retention: Retention, limit: int) -> Pruned:
    """Batch after batch, each committed; the sum."""
    total, last = Pruned(), None
    while last is None or last.more:
        last = client.prune(retention, limit=limit, behind=last)
        client.commit()
        assert max(last.counts.values()) <= limit
        total += last
    return total


def _make_older(observer: Observer, days: int = 31) -> None:
    observer.all("UPDATE jobqueue_dedup_key SET created_at = created_at - make_interval(days => :days)", days=days)


def _effect_of(queue: Client, key: str | None = "order:7") -> None:
    """A job with the key has had its effect and is gone."""
    queue.enqueue("charge", dedup_key=key)
    queue.ack(queue.claim())
    queue.commit()


@pytest.mark.parametrize("limit", [7, 5_000])
@pytest.mark.parametrize("what", ROWS)
def test_what_is_too_old_goes_in_batches_and_nothing_newer(
    what: str, limit: int, queue: Client, observer: Observer
) -> None:
    for age in ("29 days 23:58", "31 days", "0", "60 days", "-1 days"):
        _make(observer, what, 20, age)

    pruned = _prune_all(queue, Retention(**{what: MONTH}), limit)

    assert pruned.counts[what] == pruned.total == 40
    assert _count(observer, what) == 60
    assert _prune_all(queue, Retention(**{what: MONTH}), limit).total == 0


def test_a_plan_that_comes_by_an_index_passes_no_row_over(queue: Client, observer: Observer) -> None:
    for forbidden in ("enable_tidscan", "enable_seqscan", "enable_bitmapscan"):
        observer.all(
            f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {forbidden} = off', current_database()); END $$"
        )
    for age in ("31 days", "60 days"):
        _make(observer, "open_dead_letters", 20, age)
    assert _prune_all(queue, Retention(open_dead_letters=MONTH), 7).total == 40


def test_a_batch_goes_with_the_callers_transaction(queue: Client, observer: Observer) -> None:
    _make(observer, "dedup_keys", 3, "31 days")
    assert queue.prune(KEYS).dedup_keys == 3
    queue.rollback()
    assert _count(observer, "dedup_keys") == 3


@pytest.mark.parametrize("what", ROWS)
def test_only_what_is_named_is_pruned(what: str, queue: Client, observer: Observer) -> None:
    for each in ROWS:
        _make(observer, each, 5, "31 days")

    pruned = queue.prune(Retention(**{what: MONTH}))
    queue.commit()

    assert pruned.counts == dict.fromkeys(pruned.counts, 0) | {what: 5}
    left = {each: _count(observer, each) for each in ROWS if ROWS[each][0] != ROWS[what][0]}
    assert set(left.values()) <= {5, 10}


def test_one_retention_may_name_several_ages(queue: Client, observer: Observer) -> None:
    for each in ROWS:
        _make(observer, each, 5, "31 days")
    retention = Retention(
        dedup_keys=MONTH, job_log=86_400, rollup=MONTH * 2, redriven_dead_letters=MONTH, open_dead_letters=MONTH * 3
    )

    pruned = _prune_all(queue, retention, 2)

    assert (pruned.dedup_keys, pruned.job_log, pruned.redriven_dead_letters) == (5, 5, 5)
    assert (pruned.rollup, pruned.open_dead_letters) == (0, 0)


@pytest.mark.parametrize("what", ROWS)
def test_two_prunes_at_once_take_other_rows_and_neither_waits(
    what: str, queue: Client, other: Client, observer: Observer
) -> None:
    _make(observer, what, 10, "31 days")
    other.execute("SET lock_timeout = '5s'")  # a wait would be one for ever

    assert queue.prune(Retention(**{what: MONTH}), limit=4).total == 4
    assert other.prune(Retention(**{what: MONTH})).total == 6
    queue.rollback()
    other.commit()

    assert _prune_all(queue, Retention(**{what: MONTH}), 10).total == 4


def test_rows_that_are_held_are_left_for_the_next_prune(queue: Client, other: Client, observer: Observer) -> None:
    _make(observer, "job_log", 10, "31 days")
    other.execute("SELECT FROM jobqueue_job_log WHERE job_id <= 3 FOR UPDATE")
    queue.execute("SET lock_timeout = '5s'")
    assert _prune_all(queue, Retention(job_log=MONTH), 2).total == 7
    other.rollback()
    assert _prune_all(queue, Retention(job_log=MONTH), 2).total == 3


def test_the_key_of_a_redelivery_that_came_in_time_is_kept_until_it_is_done(queue: Client, observer: Observer) -> None:
    _effect_of(queue)
    queue.enqueue("charge", dedup_key="order:7")
    queue.commit()
    _make_older(observer)

    assert _prune_all(queue, KEYS, 10).total == 0

    late = queue.claim()
    assert late.duplicate
    queue.suppress(late)
    queue.commit()
    assert _prune_all(queue, KEYS, 10).dedup_keys == 1


def test_the_keys_of_a_job_that_is_not_done_yet_are_kept(queue: Client, observer: Observer) -> None:
    queue.enqueue("charge")
    job = queue.claim()
    assert queue.once(job)
    assert queue.once(job, scope="mail")
    queue.commit()
    _make_older(observer)

    assert queue.prune(KEYS).total == 0
    assert not queue.once(job)


@pytest.mark.parametrize("key", ["order:7", None])
def test_the_key_of_a_dead_letter_that_may_be_redriven_is_kept(
    key: str | None, queue: Client, observer: Observer
) -> None:
    job_id = queue.enqueue("charge", dedup_key=key, max_attempts=1).id
    job = queue.claim()
    queue.once(job)
    queue.fail(job, "no luck")
    queue.commit()
    _make_older(observer)

    assert _prune_all(queue, KEYS, 10).total == 0
    assert queue.redrive(job_id).redriven
    assert not queue.once(queue.claim())


def test_a_key_goes_together_with_the_last_dead_letter_that_had_it(queue: Client, observer: Observer) -> None:
    queue.enqueue("charge", dedup_key="order:7", max_attempts=1)
    queue.fail(queue.claim(), "no luck")
    _effect_of(queue)
    _make_older(observer)
    observer.all("UPDATE jobqueue_dead_letter SET died_at = died_at - interval '31 days'")

    pruned = queue.prune(Retention(dedup_keys=MONTH, open_dead_letters=MONTH))
    assert (pruned.open_dead_letters, pruned.dedup_keys) == (1, 1)


def test_keys_that_are_kept_do_not_stop_the_walk(queue: Client, observer: Observer) -> None:
    _make(observer, "dedup_keys", 30, "31 days")
    observer.all(
        "INSERT INTO jobqueue_job (queue, task, dedup_key) SELECT 'q', 't', key FROM jobqueue_dedup_key LIMIT 20"
    )
    assert _prune_all(queue, KEYS, 3).total == 10


def test_a_snapshot_that_does_not_show_a_redelivery_does_not_cost_it_its_key(
    queue: Client, clients: Callable[..., Client], observer: Observer
) -> None:
    """The key comes of age between the snapshot, which does not show the job, and the prune's statement."""
    _effect_of(queue)
    _make_older(observer)
    pruner = clients(isolation_level="REPEATABLE READ")
    age = pruner.execute("SELECT transaction_timestamp() - created_at FROM jobqueue_dedup_key")[0][0]
    queue.enqueue("charge", dedup_key="order:7")
    queue.commit()

    assert pruner.prune(Retention(dedup_keys=age + timedelta(microseconds=1))).total == 0
    pruner.commit()

    assert queue.claim().duplicate


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_an_effect_of_a_key_that_is_being_pruned_waits_for_the_prune(
    ends: str, queue: Client, other: Client, observer: Observer
) -> None:
    """Its job came after the key had its time, so it may have its effect if the prune commits, and only then."""
    _effect_of(queue)
    _make_older(observer)
    assert other.prune(KEYS).dedup_keys == 1
    queue.enqueue("charge", dedup_key="order:7")
    late = queue.claim()
    with ThreadPoolExecutor(1) as pool:
        acking = pool.submit(queue.ack, late)
        wait_until(observer.lock_waits, what="the ack to wait for the prune")
        getattr(other, ends)()
        if ends == "commit":
            assert not acking.result(timeout=10).duplicate
            queue.commit()
        else:
            with pytest.raises(DuplicateEffect):
                acking.result(timeout=10)
            queue.rollback()
    assert observer.dedup_keys() == [("charge", "order:7")]


def test_a_job_at_repeatable_read_whose_key_is_pruned_meanwhile_is_still_a_duplicate(
    queue: Client, clients: Callable[..., Client], observer: Observer
) -> None:
    """It is live, so the key stays, whatever the job's own snapshot shows."""
    _effect_of(queue)
    queue.enqueue("charge", dedup_key="order:7")
    queue.commit()
    _make_older(observer)
    service = clients(isolation_level="REPEATABLE READ")
    late = service.claim()
    assert _prune_all(queue, KEYS, 10).total == 0
    with pytest.raises(DuplicateEffect):
        service.ack(late)


def test_claims_go_on_while_a_prune_is_not_committed(queue: Client, other: Client, observer: Observer) -> None:
    for each in ROWS:
        _make(observer, each, 50, "31 days")
    queue.enqueue("t", dedup_key="new")
    queue.commit()
    other.prune(Retention(**dict.fromkeys(ROWS, MONTH)))

    queue.execute("SET lock_timeout = '5s'")
    queue.ack(queue.claim())
    queue.commit()
    other.commit()
    assert observer.dedup_keys() == [("t", "new")]


@pytest.mark.parametrize("age", [0, -1, 0.5, True, float("nan"), float("inf"), "90d", timedelta(0), timedelta(days=-1)])
@pytest.mark.parametrize("what", ROWS)
def test_an_age_that_is_none_is_refused_by_its_name(what: str, age: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{what} must be a timedelta or seconds between 1 and 100 years"):
        Retention(**{what: age})


def test_a_retention_that_names_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"Retention\(dedup_keys=timedelta\(days=90\)\)"):
        Retention()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "9", MOST_PRUNED + 1])
def test_a_limit_that_bounds_nothing_is_refused_before_any_sql(limit: Any, queue: Client) -> None:
    with pytest.raises(InvalidArgument, match="between 1 and 10000"):
        queue.prune(KEYS, limit=limit)
    assert queue.run(lambda session: session.in_transaction()) is False


def test_the_answer_adds_up_and_says_whether_there_is_more(queue: Client, observer: Observer) -> None:
    _make(observer, "job_log", 5, "31 days")
    first = queue.prune(Retention(job_log=MONTH), limit=3)
    second = queue.prune(Retention(job_log=MONTH), limit=3, behind=first)
    assert (first.more, second.more, (first + second).more) == (True, False, False)
    assert (first + second).job_log == 5
    assert queue.prune(Retention(job_log=MONTH), behind=second) == Pruned()
