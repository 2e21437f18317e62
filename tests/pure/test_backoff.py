"""Delays double from the base, are spread by the jitter, and stay within the cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue import Backoff, InvalidArgument

attempts = st.integers(1, 100_000)
seconds = st.floats(0.001, 1e6)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    base = draw(seconds)
    cap = draw(st.floats(base, 3e8))
    return Backoff(base=base, cap=cap, jitter=draw(st.floats(0, cap, exclude_max=True)))


def test_base_ten_waits_ten_then_twenty_then_forty_seconds() -> None:
    backoff = Backoff(base=10, cap=600, jitter=0)
    assert [backoff.seconds(attempt) for attempt in (1, 2, 3)] == [10, 20, 40]


@pytest.mark.parametrize("attempt", [30, 31, 64, 1024, 100_000])
def test_late_attempts_wait_for_the_cap(attempt: int) -> None:
    assert Backoff(base=10, cap=600, jitter=0).seconds(attempt) == 600


@given(backoff=backoffs(), attempt=attempts)
def test_no_delay_is_zero_negative_or_above_the_cap(backoff: Backoff, attempt: int) -> None:
    assert 0 < backoff.seconds(attempt) <= backoff.cap * (1 + 1e-12)
    assert backoff.delay(attempt).total_seconds() <= backoff.cap + 1e-6


@given(backoff=backoffs(), attempt=attempts)
def test_a_delay_lies_between_the_exponential_part_and_the_jitter_above_it(backoff: Backoff, attempt: int) -> None:
    exponential = min(backoff.base * 2.0 ** min(attempt - 1, 500), backoff.cap - backoff.jitter)
    rounding = 1e-9 * backoff.cap
    assert exponential - rounding <= backoff.seconds(attempt) <= exponential + backoff.jitter + rounding


@given(backoff=backoffs(), attempt=st.integers(1, 99_999))
def test_without_jitter_a_later_attempt_never_waits_less(backoff: Backoff, attempt: int) -> None:
    steady = Backoff(base=backoff.base, cap=backoff.cap, jitter=0)
    assert steady.seconds(attempt) <= steady.seconds(attempt + 1)


@pytest.mark.parametrize("attempt", [1, 100])
def test_five_hundred_failures_in_one_second_come_back_spread_over_the_jitter(attempt: int) -> None:
    backoff = Backoff(base=10, cap=600, jitter=60)
    delays = sorted(backoff.seconds(attempt) for _ in range(500))
    assert 50 < delays[-1] - delays[0] <= 60
    fullest_second = max(sum(start <= delay < start + 1 for delay in delays) for start in delays)
    assert fullest_second < 50


@pytest.mark.parametrize(
    "bad",
    [
        {"base": 0},
        {"base": -1},
        {"base": 10, "cap": 5},
        {"cap": float("inf")},
        {"base": float("nan")},
        {"jitter": -1},
        {"cap": 10, "jitter": 10},
        {"jitter": float("nan")},
    ],
    ids=str,
)
def test_settings_that_do_not_fit_together_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="Backoff needs"):
        Backoff(**bad)
