"""Draining a queue that is full: our worker in all its ways of working, and the limits beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from benchmarks.cells import limits
from benchmarks.cells.workers import ON_CONNECTION, Plan, knows, work
from benchmarks.children import in_children
from benchmarks.laps import WARM_LOADS, Lap, together
from benchmarks.meter import metering
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults

__all__ = ["Drain", "cells", "drain"]

_RAW_THREADS: Final = 8
_GROUP, _BATCH = 20, 100


@dataclass(frozen=True, slots=True)
class Drain:
    """How the queue is filled, who empties it, and what must be in the database afterwards."""

    work: Callable[..., Lap]
    arguments: tuple[Any, ...]
    processes: int = 1
    seeded: bool = True
    keys: bool = True
    effects: bool = True
    dedup: bool = True

    def expected(self, jobs: int) -> Counted:
        """The rows that are left if every job had its one effect."""
        made = jobs if self.effects else 0
        return Counted(made, made, jobs if self.dedup else 0)


def drain(how: Drain, arena: Arena, jobs: int) -> Sample:
    """One run: fill, let the caches and checkpoints settle, empty, verify."""
    arena.clear()
    if how.seeded:
        arena.seed(jobs, keys=how.keys)
    arena.settle_down()
    with metering(arena, jobs) as cost:
        lap = together(in_children(how.work, (arena.url, *how.arguments), how.processes))
    values = {"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us, **cost}
    return Sample(values, faults(arena, how.expected(jobs)))


def cells(jobs: int, concurrency: int) -> list[Cell]:
    """The cells that this release can run; each takes the number of jobs that lasts about as long as the others."""
    orm = Plan("orm", concurrency)
    plans = {
        "orm": orm,
        "core": replace(orm, handler="core", task=ON_CONNECTION),
        "core_session": replace(orm, handler="core"),
        "async_orm": replace(orm, handler="async_orm"),
        "async_core": replace(orm, handler="async_core", task=ON_CONNECTION),
        "async_core_session": replace(orm, handler="async_core"),
        "noop": replace(orm, handler="noop"),
    }
    found = [_cell(name, jobs, Drain(work, (plan,), effects=name != "noop")) for name, plan in plans.items()]
    found += [_cell("two_processes", 2 * jobs, Drain(work, (orm,), processes=2))]
    found += [_cell("no_dedup", jobs, _without_dedup(orm)), *_optional(jobs, orm)]
    return found + _limits(jobs, concurrency)


def _without_dedup(orm: Plan) -> Drain:
    return Drain(work, (replace(orm, worker={"natural_keys_only": True}),), keys=False, dedup=False)


def _optional(jobs: int, orm: Plan) -> list[Cell]:
    found = []
    if knows("group_commit"):
        grouped = replace(orm, task={"group_commit": _GROUP}, warm=WARM_LOADS * _GROUP)
        found += [_cell("group", 4 * jobs, Drain(work, (grouped,)))]
        found += [_cell("group_flush", 2 * jobs, Drain(work, (replace(grouped, handler="orm_flush"),)))]
        core = replace(grouped, handler="core", task={**grouped.task, **ON_CONNECTION})
        found += [_cell("core_group", 4 * jobs, Drain(work, (core,)))]
    if knows("batch"):
        batched = replace(orm, handler="batch", task={"batch": _BATCH}, warm=WARM_LOADS * _BATCH)
        found += [_cell("batch", 10 * jobs, Drain(work, (batched,)))]
    return found


def _limits(jobs: int, concurrency: int) -> list[Cell]:
    return [
        _bare("bare", jobs, limits.bare, concurrency, "orm"),
        _bare("bare_core", jobs, partial(limits.bare, core=True), concurrency, "core"),
        _bare("bare_core_session", jobs, limits.bare, concurrency, "core"),
        _bare("bare_batch", 10 * jobs, limits.bare_batch, concurrency, _BATCH),
        _cell("orm_floor", jobs, Drain(limits.floor, (concurrency,))),
        _cell("core_floor", jobs, Drain(limits.core_floor, (concurrency,))),
        _cell("naive", jobs // 2, Drain(limits.naive, (concurrency,))),
        _cell("raw", 3 * jobs, Drain(limits.raw, (_RAW_THREADS,))),
        _cell("raw_batch", 20 * jobs, Drain(limits.raw_batch, (concurrency,))),
        _cell("raw_batch_array", 20 * jobs, Drain(limits.raw_batch_array, (concurrency,))),
        _cell("raw_unfenced", 4 * jobs, Drain(limits.raw_unfenced, (_RAW_THREADS,), dedup=False)),
    ]


def _bare(name: str, jobs: int, work: Callable[..., Lap], *arguments: int | str) -> Cell:
    return _cell(name, jobs, Drain(work, (jobs, *arguments), seeded=False, dedup=False))


def _cell(name: str, jobs: int, how: Drain) -> Cell:
    return Cell(name, jobs, partial(drain, how))
