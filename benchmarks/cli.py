"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from benchmarks import figures, growth, plots, report
from benchmarks.conditions import conditions
from benchmarks.peers.environments import default_cache
from benchmarks.peers.installing import installed
from benchmarks.rounds import Cell, Series, run_rounds
from benchmarks.scale import FULL, QUICK, QUICK_CELLS, Scale, cells_of_peer, our_cells
from benchmarks.server import Arena, arena, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

_WIDTH: Final = 140
_IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
_notes = Console(stderr=True, width=_WIDTH)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and tell; the exit code is 1 if a job was lost or repeated."""
    given = _parser().parse_args(arguments)
    scale = QUICK if given.quick else FULL
    series, told, under = _COMMANDS[given.command](given, scale)
    under |= {"scale": asdict(scale), "rounds": max(map(len, series.samples.values()))}
    if given.json:
        sys.stdout.write(report.as_json(report.answer(series, told, under)) + "\n")
    else:
        report.show(series, told, under, Console(width=_WIDTH))
    return 0 if series.exactly_once else 1


def _figures(given: argparse.Namespace, scale: Scale) -> tuple[Series, dict[str, float], dict[str, Any]]:
    with _ready(given) as (_, ready, under), tempfile.TemporaryDirectory(prefix="sa-jobqueue-peers-") as logs:
        cells = our_cells(scale, given.concurrency)
        if given.peers:
            peers, under["peers"] = installed(ready, given.cache, Path(logs))
            cells += [cell for peer in peers for cell in cells_of_peer(peer, scale)]
        chosen = _chosen(cells, given)
        under["jobs"] = {cell.name: cell.jobs for cell in chosen}
        at_most = float("inf") if given.rounds or given.peers else scale.at_most
        rounds = given.rounds or scale.rounds
        series = run_rounds(chosen, ready, rounds=rounds, seconds=at_most, progress=_note)
    return series, figures.figures(series), under


def _growth(given: argparse.Namespace, scale: Scale) -> tuple[Series, dict[str, float], dict[str, Any]]:
    with _ready(given) as (url, _, under):
        rows = given.rows or scale.grown_rows
        series = growth.measure(
            url,
            rows=rows,
            jobs=scale.grown_jobs,
            rounds=given.rounds or scale.rounds,
            concurrency=given.concurrency,
            progress=_note,
        )
        under |= {"rows": rows, "jobs": scale.grown_jobs}
    return series, growth.figures_of(series), under


def _plots(given: argparse.Namespace, scale: Scale) -> tuple[Series, dict[str, float], dict[str, Any]]:
    with _ready(given) as (url, _, under):
        rows = given.rows or scale.grown_rows
        series = plots.measure(
            url,
            rows=rows,
            jobs=scale.grown_jobs,
            passing=scale.passing,
            rounds=given.rounds or scale.rounds,
            concurrency=given.concurrency,
            progress=_note,
        )
        under |= {"rows": rows, "jobs": scale.grown_jobs}
    told = plots.figures_of(series)
    for file in plots.draw(figures.nested(told)["plots"], given.images):
        _note(f"drawn: {file}")
    return series, told, under


_COMMANDS: Final = {"figures": _figures, "growth": _growth, "plots": _plots}


@contextmanager
def _ready(given: argparse.Namespace) -> Iterator[tuple[str, Arena, dict[str, Any]]]:
    """A server, a database on it, and the conditions."""
    with ExitStack() as stack:
        url, data = stack.enter_context(serving(given.url, given.folder))
        ready = stack.enter_context(arena(url))
        under = conditions(ready, data) | {"concurrency": given.concurrency}
        if under["load_before"] > under["cores"] / 2:
            _note(f"load {under['load_before']} on {under['cores']} cores: others work here; read ratios and CPU")
        yield url, ready, under
        under["load_after"] = round(os.getloadavg()[0], 2)


def _chosen(cells: list[Cell], given: argparse.Namespace) -> list[Cell]:
    """Those that were named, else all; of ours only some in a quick run."""
    if given.only is None:
        return [cell for cell in cells if not given.quick or "." in cell.name or cell.name in QUICK_CELLS]
    wanted = set(given.only.split(","))
    if unknown := wanted - {cell.name for cell in cells}:
        msg = f"no such cell: {', '.join(sorted(unknown))}; there are {', '.join(cell.name for cell in cells)}"
        raise SystemExit(msg)
    return [cell for cell in cells if cell.name in wanted]


def _note(line: str) -> None:
    _notes.print(line, style="dim")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("command", nargs="?", choices=_COMMANDS, default="figures")
    parser.add_argument("--quick", action="store_true", help="the main cells, few jobs: under 2 minutes")
    parser.add_argument("--peers", action="store_true", help="also the peers, each installed by name from PyPI")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", metavar="CELLS", help="figures: names of cells, with commas")
    parser.add_argument(
        "--rows", type=int, help="growth, plots: of each kind; by default 1,000,000, or 100,000 if quick"
    )
    parser.add_argument("--images", type=Path, default=_IMAGES, help="plots: the folder of the SVG files")
    parser.add_argument("--rounds", type=int, help="by default 5, or 3 if quick")
    parser.add_argument("--concurrency", type=int, default=4, help="handlers at a time, and threads of their limits")
    parser.add_argument("--url", help="a server to measure on, through a role that may create databases")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the peers' environments are kept")
    parser.add_argument("--folder", type=Path, help="where the own server keeps its data; on a disk")
    return parser
