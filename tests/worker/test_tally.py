"""What a worker counts between two writes, and how it tells outages."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from sa_jobqueue import ClaimedJob
from sa_jobqueue.observe import Outage, Recovered
from sa_jobqueue.states import Outcome
from sa_jobqueue.worker.outages import Outages
from sa_jobqueue.worker.tally import Counts, Tally
from tests.proofs.crew import Events

_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
_JOB = ClaimedJob(7, "work", "task", {}, {}, 0, 1, 5, 1, _NOON, _NOON, _NOON, "me", None, None)


def counted(tally: Tally) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    tally.write(
        lambda taken: counts.update({(metric, bucket): n for (_, _, metric, bucket), n in taken.counter.items()})
    )
    return counts


def test_a_run_counts_once_by_its_outcome_and_once_by_its_duration() -> None:
    tally = Tally()
    tally.ran(_JOB, Outcome.DONE, 0.0015)
    tally.ran(_JOB, Outcome.RETRIED, 0.0015)
    assert counted(tally) == {("done", -1): 1, ("retried", -1): 1, ("seconds", 1): 2}


def test_a_duplicate_has_no_duration() -> None:
    tally = Tally()
    tally.ran(_JOB, Outcome.DUPLICATE, 0.0015)
    assert counted(tally) == {("duplicate", -1): 1}


def test_what_was_written_is_not_counted_again() -> None:
    tally = Tally()
    tally.ran(_JOB, Outcome.DUPLICATE, 0)
    assert counted(tally)
    assert counted(tally) == {}


def test_what_could_not_be_written_is_kept_for_the_next_time() -> None:
    def add(_counts: Counts) -> None:
        tally.ran(_JOB, Outcome.DUPLICATE, 0)
        raise ConnectionError

    tally = Tally()
    tally.ran(_JOB, Outcome.DUPLICATE, 0)
    with pytest.raises(ConnectionError):
        tally.write(add)
    assert counted(tally) == {("duplicate", -1): 2}


def test_runs_that_end_on_many_threads_are_all_counted() -> None:
    tally = Tally()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2_000):
            pool.submit(tally.ran, _JOB, Outcome.DUPLICATE, 0)
    assert counted(tally) == {("duplicate", -1): 2_000}


def test_rows_of_the_rollup_come_in_one_order_for_all_workers() -> None:
    counts = Counts(Counter({("q", "t", metric, -1): 1 for metric in ("retried", "dead", "duplicate")}))
    assert counts.as_arrays()["metrics"] == ["dead", "duplicate", "retried"]


def test_an_outage_is_told_once_and_so_is_its_end(events: Events) -> None:
    outages = Outages("me", events)
    for _ in range(50):
        outages.failed(OSError())
    outages.answered()
    outages.answered()
    assert [type(event) for event in events.all] == [Outage, Recovered]


def test_the_pauses_of_an_outage_grow_to_ten_seconds(events: Events) -> None:
    outages = Outages("me", events)
    pauses = [outages.failed(OSError()) for _ in range(50)]
    assert pauses[0] < 0.5
    assert 9 < max(pauses) <= 10
