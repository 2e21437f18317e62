"""Does the rate of claims stay what it is when a table has grown? One database for each kind of growth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

from benchmarks.ballast import KINDS, load
from benchmarks.cells.claims import claim_rate, worker_rate
from benchmarks.cells.neighbours import SMALL, pickups_beside
from benchmarks.cells.workers import ON_CONNECTION, Plan
from benchmarks.rounds import Cell, Sample, Series, median, ratio, run_rounds
from benchmarks.server import Arena, arena

__all__ = ["figures_of", "measure"]

_PICKUPS: Final = 60
_SECONDS: Final = 20.0
"""Pickups of one run, and for how long they may go on; four are measured however long they take."""
_TOLD: Final = {
    "jobs_per_s": ("{}_per_s", "{}_of_none"),
    "p50_ms": ("{}_ms.p50", "{}_of_none.p50"),
    "p99_ms": ("{}_ms.p99", "{}_of_none.p99"),
}
"""How the median of a value is called after what was measured, and how its ratio to that without growth is."""


def measure(url: str, *, rows: int, jobs: int, rounds: int, concurrency: int, progress: Callable[[str], Any]) -> Series:
    """Every kind of growth against none: claims by themselves, and a worker with one Core INSERT a job.

    Of twenty queues also how long a job waits in the small ones, whose worker works off the huge one meanwhile.
    """
    with ExitStack() as stack:
        cells = []
        for kind in ("none", *KINDS):
            progress(f"{rows:,} rows: {kind}")
            grown = stack.enter_context(_grown(url, kind, rows))
            cells += _cells(kind, grown, jobs, concurrency)
        return run_rounds(cells, grown, rounds=rounds, progress=progress)


def figures_of(series: Series) -> dict[str, float]:
    """For each kind what was measured, and its ratio to that without growth; the huge queue to nineteen without it."""
    found: dict[str, float | None] = {}
    for cell in series.samples:
        kind, _, what = cell.partition(".")
        base = "twenty_queues" if kind == "another_queue" and what != "claims" else "none"
        for value, (name, of_none) in _TOLD.items():
            found[f"{kind}.{name.format(what)}"] = median(series, cell, value)
            if kind not in {"none", "twenty_queues"}:
                found[f"{kind}.{of_none.format(what)}"] = ratio(series, cell, f"{base}.{what}", value)
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def _grown(url: str, kind: str, rows: int) -> Iterator[Arena]:
    with arena(url) as fresh:
        if kind in KINDS:
            load(fresh, kind, rows)
        yield fresh


def _cells(kind: str, grown: Arena, jobs: int, concurrency: int) -> list[Cell]:
    """Cells that stay in their own database, whichever the rounds offer them."""
    plan = Plan("core", concurrency, ON_CONNECTION)
    queues = SMALL if kind == "another_queue" else ("default",)
    cells = [
        Cell(f"{kind}.claims", jobs, partial(_claims, grown)),
        Cell(f"{kind}.worker", jobs, partial(_worker, grown, plan, queues)),
    ]
    if kind == "none":
        cells.append(Cell("twenty_queues.worker", jobs, partial(_worker, grown, plan, SMALL)))
        cells.append(Cell("twenty_queues.pickup", _PICKUPS, partial(_pickup, grown, plan)))
    if kind == "another_queue":
        cells.append(Cell("another_queue.pickup", _PICKUPS, partial(_pickup, grown, plan)))
    return cells


def _claims(grown: Arena, _arena: Arena, jobs: int) -> Sample:
    return claim_rate(grown, jobs)


def _worker(grown: Arena, plan: Plan, queues: tuple[str, ...], _arena: Arena, jobs: int) -> Sample:
    return worker_rate(plan, grown, jobs, queues)


def _pickup(grown: Arena, plan: Plan, _arena: Arena, jobs: int) -> Sample:
    return pickups_beside(grown, plan, _SECONDS, jobs)
