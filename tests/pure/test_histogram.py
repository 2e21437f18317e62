"""Percentiles from doubling buckets are never off by more than a factor of two."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.histogram import BUCKETS, bucket_of, mean, quantile, upper_bound

within = st.floats(0.0011, upper_bound(BUCKETS - 1))


@given(duration=within)
def test_a_duration_lies_between_the_bounds_of_its_bucket(duration: float) -> None:
    bucket = bucket_of(duration)
    assert upper_bound(bucket - 1) * (1 - 1e-12) < duration <= upper_bound(bucket) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("duration", "bucket"), [(-1, 0), (0, 0), (0.001, 0), (0.0011, 1), (0.002, 1), (1e9, BUCKETS - 1)]
)
def test_the_first_and_the_last_bucket_take_everything_beyond(duration: float, bucket: int) -> None:
    assert bucket_of(duration) == bucket


@given(durations=st.lists(within, min_size=1), share=st.floats(0.01, 1))
def test_a_quantile_is_within_a_factor_of_two_of_the_true_one(durations: list[float], share: float) -> None:
    counts = Counter(map(bucket_of, durations))
    true = sorted(durations)[ceil(share * len(durations)) - 1]
    assert true / 2.001 <= quantile(counts, share) <= true * 2.001


@given(durations=st.lists(within, min_size=1))
def test_a_mean_is_within_a_factor_of_two_of_the_true_one(durations: list[float]) -> None:
    true = sum(durations) / len(durations)
    assert true / 2 <= mean(Counter(map(bucket_of, durations))) <= true * 2


def test_without_runs_there_is_no_mean() -> None:
    assert mean({}) is None
    assert mean({3: 0}) is None


@given(counts=st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(0, 2**40)))
def test_quantiles_grow_with_the_share(counts: dict[int, int]) -> None:
    shares = [quantile(counts, share / 20) for share in range(21)]
    if not sum(counts.values()):
        assert set(shares) == {None}
    else:
        assert shares == sorted(shares)


@given(one=st.lists(within), two=st.lists(within))
def test_histograms_of_two_processes_add_up(one: list[float], two: list[float]) -> None:
    together = Counter(map(bucket_of, one)) + Counter(map(bucket_of, two))
    assert quantile(together, 0.5) == quantile(Counter(map(bucket_of, one + two)), 0.5)
