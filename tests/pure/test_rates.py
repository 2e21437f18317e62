"""Counters become figures for each queue."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from sa_jobqueue.rates import queue_stats


def _count(queue: str, metric: str, count: int, bucket: int = -1) -> SimpleNamespace:
    return SimpleNamespace(queue=queue, metric=metric, bucket=bucket, count=count)


def test_a_duplicate_is_finished_too_and_a_retry_is_not() -> None:
    recent = [_count("q", "done", 50), _count("q", "duplicate", 10), _count("q", "retried", 7)]
    (stats,) = queue_stats([], recent, timedelta(minutes=1))
    assert (stats.finished, stats.duplicates, stats.retried, stats.jobs_per_second) == (60, 10, 7, 1.0)


def test_percentiles_come_from_the_buckets_and_not_from_the_outcomes() -> None:
    recent = [_count("q", "done", 1_000), _count("q", "seconds", 99, bucket=0), _count("q", "seconds", 1, bucket=10)]
    (stats,) = queue_stats([], recent, timedelta(minutes=1))
    assert stats.p50_seconds <= 0.001
    assert stats.p99_seconds <= 0.001


def test_queues_that_only_live_or_only_ran_are_both_there_in_order() -> None:
    live = [{"queue": "b", "queued": 3, "scheduled": 0, "claimed": 0, "lag_seconds": 1.5}]
    dead = [{"queue": "c", "dead": 2}]
    stats = queue_stats([*live, *dead], [_count("a", "done", 1)], timedelta(minutes=5))
    assert [(one.queue, one.queued, one.dead, one.finished) for one in stats] == [
        ("a", 0, 0, 1),
        ("b", 3, 0, 0),
        ("c", 0, 2, 0),
    ]
