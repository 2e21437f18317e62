"""Of one task: whether its jobs should share commits, and how many of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import Recommendation, Settings, TaskRuns
from sa_jobqueue.cli.tune.rounding import at_most, percent

__all__ = ["together"]

_BUSY: Final = 50.0
"""Runs a second, in the busiest minute, from which on sharing commits is worth its caveats."""
_SHORT: Final = 0.1
"""Seconds of a turn: its jobs become visible together, and one failure repeats the work of all."""
_MOST: Final = 100
_REPEATED: Final = 0.1
"""The share of the groups that may be rolled back and run one by one."""


def together(runs: TaskRuns, settings: Settings) -> Iterator[Recommendation]:
    """A size for ``group_commit``, or a smaller one for a task that has it or ``batch``."""
    shared = settings.batch or settings.group_commit
    if shared is None or shared == 1:
        yield from _share(runs, settings)
    elif (most := _at_failures(runs)) < shared:
        repeated = 1 - (1 - runs.failing) ** shared
        why = (
            f"{percent(runs.failing)} of its runs fail, so {percent(repeated)} of full turns of {shared} are rolled "
            f"back and run one by one"
        )
        setting = "batch" if settings.batch else "group_commit"
        yield _of(runs, setting, f"{shared}", f"{_round(most)}", why)


def _share(runs: TaskRuns, settings: Settings) -> Iterator[Recommendation]:
    rate, size = runs.busiest / 60, min(_MOST, _at_failures(runs), int(_SHORT / max(runs.mean, 1e-9)))
    if rate < _BUSY or runs.p99 > _SHORT or _round(size) <= 1:
        return
    why = (
        f"{rate:,.0f} runs a second in the busiest minute, p50 {duration(runs.p50)}, p99 {duration(runs.p99)}: a "
        f"commit each is much of that. Not if it has effects outside the database, or changes hot rows. (batch gains "
        f"more, and asks for another handler)"
    )
    now = "1" if settings.declared else None
    yield _of(runs, "group_commit", now, f"{_round(size)}", why)


def _at_failures(runs: TaskRuns) -> int:
    """The largest group of which no more than one in ten holds a run that fails."""
    if not runs.failing:
        return _MOST * 10
    return 1 if runs.failing >= 1 else max(1, int(math.log1p(-_REPEATED) / math.log1p(-runs.failing)))


def _round(size: int) -> int:
    return int(at_most(size)) if size >= 1 else 0


def _of(runs: TaskRuns, setting: str, now: str | None, wanted: str, why: str) -> Recommendation:
    figures = {
        "runs_per_second_busiest_minute": runs.busiest / 60,
        "p50": runs.p50,
        "p99": runs.p99,
        "failing": runs.failing,
    }
    return Recommendation("task", runs.task, setting, now, wanted, why, figures)
