"""From counters to the figures that people ask for; pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sa_jobqueue.histogram import quantile
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import QueueStats

__all__ = ["queue_stats"]


def queue_stats(counts: Iterable[Mapping[Any, Any]], recent: Iterable[Any], window: timedelta) -> list[QueueStats]:
    """Join counts by queue with the rollup rows ``(queue, metric, bucket, count)`` of the last ``window``."""
    now: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in counts:
        now[row["queue"]].update(row)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    buckets: dict[str, Counter[int]] = defaultdict(Counter)
    for row in recent:
        if row.bucket < 0:
            outcomes[row.queue][row.metric] += row.count
        else:
            buckets[row.queue][row.bucket] += row.count
    queues = sorted({*now, *outcomes, *buckets})
    return [
        QueueStats(**{"queue": queue, **now[queue], **_ran(outcomes[queue], buckets[queue], window)})
        for queue in queues
    ]


def _ran(outcomes: Mapping[str, int], buckets: Mapping[int, int], window: timedelta) -> dict[str, Any]:
    finished = outcomes.get(Outcome.DONE, 0) + outcomes.get(Outcome.DUPLICATE, 0)
    return {
        "finished": finished,
        "duplicates": outcomes.get(Outcome.DUPLICATE, 0),
        "retried": outcomes.get(Outcome.RETRIED, 0),
        "requeued": outcomes.get(Outcome.REQUEUED, 0),
        "jobs_per_second": finished / window.total_seconds(),
        "p50_seconds": quantile(buckets, 0.5),
        "p99_seconds": quantile(buckets, 0.99),
    }
