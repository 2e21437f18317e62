"""Enqueues, one at a time and a thousand at a time, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.cells import producers
from benchmarks.children import in_children
from benchmarks.laps import Lap
from benchmarks.meter import metering
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults

__all__ = ["cells"]


def cells(jobs: int) -> list[Cell]:
    """``jobs`` is the number of single enqueues."""
    bulk = 20 * producers.BULK * max(1, jobs // 1_000)
    return [
        Cell("enqueue", jobs, partial(_produce, producers.single_enqueue)),
        Cell("own_insert", jobs, partial(_produce, producers.own_insert, effects=True)),
        Cell("bulk_enqueue", bulk, partial(_produce, producers.bulk_enqueue)),
        Cell("copy", 2 * bulk, partial(_produce, producers.copy_rows)),
    ]


def _produce(work: Callable[[str, int], Lap], arena: Arena, jobs: int, *, effects: bool = False) -> Sample:
    arena.clear()
    arena.settle_down()
    with metering(arena, jobs) as cost:
        lap: Lap = in_children(work, (arena.url, jobs))[0]
    wanted = Counted(jobs, jobs, 0) if effects else Counted(0, 0, 0, jobs_left=jobs)
    return Sample({"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us, **cost}, faults(arena, wanted))
