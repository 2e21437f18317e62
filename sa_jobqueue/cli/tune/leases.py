"""Of one task: the visibility timeout and the time limit, from its run times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sa_jobqueue import histogram
from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import Figures, Recommendation, Settings, TaskRuns
from sa_jobqueue.cli.tune.rounding import at_least, percent
from sa_jobqueue.session import DEFAULT_VISIBILITY_TIMEOUT
from sa_jobqueue.states import Outcome

__all__ = ["leases"]

LEASE: Final = DEFAULT_VISIBILITY_TIMEOUT.total_seconds()
_LONG_LEASE: Final = 2 * LEASE
_BEATS: Final = 3
"""Heartbeats come after a third of the visibility timeout."""
_LOST, _LOST_SHARE = 5, 0.01
_LEAST_LIMIT: Final = 60.0
_ROOM: Final = 10
"""A time limit is for handlers that hang: so many times the p99, and no run that was seen would have hit it."""


def leases(runs: TaskRuns, settings: Settings) -> Iterator[Recommendation]:
    """What run times and lost leases say about the two spans."""
    yield from _visibility_timeout(runs, settings.visibility_timeout)
    yield from _time_limit(runs, settings)


def _visibility_timeout(runs: TaskRuns, now: float | None) -> Iterator[Recommendation]:
    lost = runs.count(Outcome.REQUEUED)
    share = lost / (runs.ended + lost) if lost else 0.0
    figures = {"p99": runs.p99, "requeued": lost, "ended": runs.ended}
    if now is not None and now > _LONG_LEASE:
        why = f"jobs of a worker that crashed wait up to {duration(now)} for the next one, {_outlive(runs, LEASE)}"
        yield _of(runs, "visibility_timeout", duration(now), duration(LEASE), why, figures)
    elif lost >= _LOST and share >= _LOST_SHARE:
        yield _losing(runs, now, f"{lost:,} leases ran out beside {runs.ended:,} runs that ended", figures)
    elif now is not None and runs.p99 > now / _BEATS:
        why = f"right as it is: {_outlive(runs, now)}"
        yield _of(runs, "visibility_timeout", duration(now), duration(now), why, figures)


def _losing(runs: TaskRuns, now: float | None, seen: str, figures: Figures) -> Recommendation:
    if now is not None and now >= LEASE:
        why = f"{seen}. Not too short a lease: look for workers that are killed (memory, stops without SIGTERM)"
        return _of(runs, "visibility_timeout", duration(now), duration(now), why, figures)
    why = f"{seen}: workers that pause or fail over for longer than the lease lose it; a heartbeat has a third of it"
    known = None if now is None else duration(now)
    wanted = duration(LEASE) if now is not None else f"at least {duration(LEASE)}"
    return _of(runs, "visibility_timeout", known, wanted, why, figures)


def _outlive(runs: TaskRuns, lease: float) -> str:
    why = f"heartbeats extend the lease of longer runs (p99 {duration(runs.p99)})"
    if runs.p99 <= lease / _BEATS:
        return why
    return f"{why}; but at REPEATABLE READ and above no run may outlive it: there, take more than the longest run"


def _time_limit(runs: TaskRuns, settings: Settings) -> Iterator[Recommendation]:
    longest, now = runs.longest, settings.time_limit
    if longest is None:
        return
    wanted = max(_LEAST_LIMIT, at_least(max(_ROOM * runs.p99, 2 * longest)))
    figures = {"p99": runs.p99, "longest": longest, "recommended": wanted}
    seen = f"p99 {duration(runs.p99)}, none above {duration(longest)}"
    if now is None:
        why = f"without one a handler that hangs keeps its slot for ever, under a lease that is extended; {seen}"
        yield _of(runs, "time_limit", "none" if settings.declared else None, duration(wanted), why, figures)
    elif runs.p99 > now / 2:
        over = sum(count for bucket, count in runs.buckets.items() if histogram.upper_bound(bucket) > now / 2)
        why = f"{percent(over / runs.runs)} of the runs take about half of it or more: it ends runs that do not hang"
        yield _of(runs, "time_limit", duration(now), duration(max(wanted, 2 * now)), why, figures)


def _of(runs: TaskRuns, setting: str, now: str | None, wanted: str, why: str, figures: Figures) -> Recommendation:
    return Recommendation("task", runs.task, setting, now, wanted, why, figures)
