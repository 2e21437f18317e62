"""How much is measured, and so how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.cells import drains, enqueues, hints, idle, others, paired, pgbench, snapshot
from benchmarks.rounds import Cell

__all__ = ["FULL", "QUICK", "QUICK_CELLS", "Scale", "cells_of_peer", "our_cells"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Counts of jobs and rows; ``seconds`` of one pickup or idle run, ``at_most`` seconds of all rounds together."""

    rounds: int
    drain_jobs: int
    enqueues: int
    pickups: int
    seconds: float
    snapshot_jobs: int
    passing: int
    grown_rows: int
    grown_jobs: int
    at_most: float


QUICK: Final = Scale(
    rounds=3,
    drain_jobs=700,
    enqueues=1_000,
    pickups=60,
    seconds=3,
    snapshot_jobs=600,
    passing=12_000,
    grown_rows=100_000,
    grown_jobs=600,
    at_most=110,
)
FULL: Final = Scale(
    rounds=5,
    drain_jobs=4_000,
    enqueues=4_000,
    pickups=60,
    seconds=20,
    snapshot_jobs=3_000,
    passing=200_000,
    grown_rows=1_000_000,
    grown_jobs=2_000,
    at_most=float("inf"),
)


QUICK_CELLS: Final = (
    *("orm", "bare", "orm_paired", "core", "raw", "async_orm", "group", "batch", "raw_batch", "bare_batch", "pickup"),
    *("held_snapshot", "no_snapshot", "bulk_enqueue", "copy", "enqueue", "own_insert"),
)
"""What a quick run measures: three rounds of more would take longer than two minutes."""


def our_cells(scale: Scale, concurrency: int) -> list[Cell]:
    """Everything but the peers."""
    return [
        *drains.cells(scale.drain_jobs, concurrency),
        *paired.cells(scale.drain_jobs, concurrency),
        *pgbench.cells(scale.drain_jobs),
        *enqueues.cells(scale.enqueues),
        *hints.cells(2 * scale.enqueues),
        *idle.cells(scale.pickups, scale.seconds, concurrency),
        *snapshot.cells(scale.snapshot_jobs, scale.passing, concurrency),
    ]


def cells_of_peer(peer: others.Peer, scale: Scale) -> list[Cell]:
    """The same work by a peer."""
    return others.cells(peer, drain_jobs=scale.drain_jobs, enqueues=scale.enqueues, pickups=scale.pickups)
