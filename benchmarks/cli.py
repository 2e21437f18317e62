"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import report
from benchmarks.cells import drains, enqueues, idle, others, snapshot
from benchmarks.conditions import conditions
from benchmarks.peers.environments import default_cache
from benchmarks.peers.installing import installed
from benchmarks.rounds import Cell, run_rounds
from benchmarks.server import arena, serving

__all__ = ["main"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured; ``seconds`` are those of one pickup or idle run, ``at_most`` those of all rounds."""

    rounds: int
    drain_jobs: int
    enqueues: int
    pickups: int
    seconds: float
    snapshot_jobs: int
    passing: int
    at_most: float


_QUICK: Final = Scale(3, 800, 1_000, 60, 3, 600, 40_000, 110)
_FULL: Final = Scale(5, 4_000, 4_000, 60, 20, 3_000, 200_000, float("inf"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and tell; the exit code is 1 if a job was lost or repeated."""
    given = _parser().parse_args(arguments)
    console = Console(stderr=True)
    scale = _QUICK if given.quick else _FULL
    rounds = given.rounds or scale.rounds
    with ExitStack() as stack:
        url, data = stack.enter_context(serving(given.url, given.folder))
        ready = stack.enter_context(arena(url))
        cells, under = _cells(scale, given.concurrency), conditions(ready, data)
        if given.peers:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sa-jobqueue-peers-")))
            peers, under["peers"] = installed(ready, given.cache, folder)
            for peer in peers:
                cells += others.cells(peer, drain_jobs=scale.drain_jobs, enqueues=scale.enqueues, pickups=scale.pickups)
        chosen = _chosen(cells, given.only)
        under |= {"rounds": rounds, "concurrency": given.concurrency, "jobs": {cell.name: cell.jobs for cell in chosen}}
        under |= {"scale": asdict(scale)}
        series = run_rounds(
            chosen,
            ready,
            rounds=rounds,
            seconds=float("inf") if given.rounds else scale.at_most,
            progress=lambda line: console.print(line, style="dim"),
        )
        under["rounds"] = max(map(len, series.samples.values()))
    if given.json:
        sys.stdout.write(report.as_json(report.answer(series, under)) + "\n")
    else:
        report.show(series, under, Console(width=140))
    return 0 if series.exactly_once else 1


def _cells(scale: Scale, concurrency: int) -> list[Cell]:
    return [
        *drains.cells(scale.drain_jobs, concurrency),
        *enqueues.cells(scale.enqueues),
        *idle.cells(scale.pickups, scale.seconds, concurrency),
        *snapshot.cells(scale.snapshot_jobs, scale.passing, concurrency),
    ]


def _chosen(cells: list[Cell], only: str | None) -> list[Cell]:
    if only is None:
        return cells
    wanted = set(only.split(","))
    if unknown := wanted - {cell.name for cell in cells}:
        msg = f"no such cell: {', '.join(sorted(unknown))}; there are {', '.join(cell.name for cell in cells)}"
        raise SystemExit(msg)
    return [cell for cell in cells if cell.name in wanted]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="three rounds of few jobs, or fewer rounds: under two minutes"
    )
    parser.add_argument("--peers", action="store_true", help="also the peers, each installed by name from PyPI")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", metavar="CELLS", help="names of cells, with commas")
    parser.add_argument("--rounds", type=int, help="by default 3 if quick, else 5")
    parser.add_argument(
        "--concurrency", type=int, default=4, help="handlers at a time in a worker, threads of its limits"
    )
    parser.add_argument("--url", help="a server to measure on, through a role that may create databases")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the peers' environments are kept")
    parser.add_argument("--folder", type=Path, help="where the own server keeps its data; on a disk")
    return parser
