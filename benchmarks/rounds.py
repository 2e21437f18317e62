"""Rounds: every cell once in each, in an order that is drawn anew, so that no cell has the quiet minutes for itself."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.server import Arena

__all__ = ["Cell", "Sample", "Series", "median", "ratio", "run_rounds"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one cell: what was measured by name (``jobs_per_s``, ``cpu_us`` …), and what was wrong with it."""

    values: Mapping[str, float]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to measure. ``jobs`` is how many a run takes, ``rounds`` a limit for those that take long."""

    name: str
    jobs: int
    measure: Callable[[Arena, int], Sample]
    rounds: int | None = None


@dataclass(slots=True)
class Series:
    """All samples of a command, by cell; those of one position come from the same round."""

    samples: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """Every fault of every run, with the name of its cell."""
        return [f"{name}: {fault}" for name, runs in self.samples.items() for run in runs for fault in run.faults]

    @property
    def exactly_once(self) -> bool:
        """True only if every job of every run had one effect."""
        return bool(self.samples) and not self.faults


def run_rounds(
    cells: Sequence[Cell],
    arena: Arena,
    *,
    rounds: int,
    progress: Callable[[str], Any],
    seconds: float = float("inf"),
) -> Series:
    """Measure every cell in every round; no round begins that might end after ``seconds``, but for the first."""
    series = Series({cell.name: [] for cell in cells})
    dice = random.SystemRandom()
    start, longest = time.monotonic(), 0.0
    for number in range(rounds):
        if (begun := time.monotonic()) - start + longest > seconds:
            progress(f"{number} rounds took the time of {rounds}")
            break
        due = [cell for cell in cells if cell.rounds is None or number < cell.rounds]
        for cell in dice.sample(due, len(due)):
            began = time.monotonic()
            series.samples[cell.name].append(cell.measure(arena, cell.jobs))
            progress(f"round {number + 1} of {rounds}: {cell.name}, {time.monotonic() - began:.1f} s")
        longest = max(longest, time.monotonic() - begun)
    return series


def median(series: Series, cell: str, value: str) -> float | None:
    """The median over the rounds, or None if it was not measured."""
    found = [run.values[value] for run in series.samples.get(cell, []) if value in run.values]
    return statistics.median(found) if found else None


def ratio(series: Series, cell: str, over: str, value: str) -> float | None:
    """The median of the ratios within each round: what slows a whole round down slows both sides of it."""
    pairs = zip(series.samples.get(cell, []), series.samples.get(over, []), strict=False)
    found = [one.values[value] / other.values[value] for one, other in pairs if other.values.get(value)]
    return statistics.median(found) if found else None
