"""Durations as a histogram whose buckets double: exact enough for p50 and p99, and addable over a fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["BUCKETS", "bucket_of", "mean", "quantile", "upper_bound"]

_FIRST = 0.001
BUCKETS = 24
"""Bucket 0 holds up to a millisecond, each next one up to twice as much, the last one everything above 70 minutes."""


def upper_bound(bucket: int) -> float:
    """Seconds up to which ``bucket`` counts."""
    return math.ldexp(_FIRST, bucket)


def bucket_of(seconds: float) -> int:
    """The bucket that counts a duration of ``seconds``."""
    if seconds <= _FIRST:
        return 0
    return min(math.ceil(math.log2(seconds / _FIRST)), BUCKETS - 1)


def mean(counts: Mapping[int, int]) -> float | None:
    """The mean duration in seconds, runs taken as evenly spread inside their bucket; None without runs."""
    runs = sum(counts.values())
    return sum(count * _middle(bucket) for bucket, count in counts.items()) / runs if runs else None


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in seconds that ``share`` (0 to 1) of the runs did not exceed; None without runs.

    Inside a bucket the runs are taken as evenly spread, so the answer is off by less than a factor of two.
    """
    rank = share * sum(counts.values())
    for bucket, count in sorted(counts.items()):
        if count and rank <= count:
            below = upper_bound(bucket - 1) if bucket else 0.0
            return below + (upper_bound(bucket) - below) * rank / count
        rank -= count
    return None


def _middle(bucket: int) -> float:
    return upper_bound(bucket) * (0.75 if bucket else 0.5)
