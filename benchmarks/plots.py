"""Throughput against backlog, history, scheduled rows, workers, and jobs that passed under a held snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.ballast import load
from benchmarks.cells.claims import worker_rate
from benchmarks.cells.drains import Drain, drain
from benchmarks.cells.snapshot import drain_behind
from benchmarks.cells.workers import Plan, work
from benchmarks.rounds import Cell, Sample, Series, median, run_rounds
from benchmarks.server import Arena, arena

__all__ = ["draw", "figures_of", "measure"]

_GROWING: Final = ("queued", "logged", "scheduled")
_WORKERS: Final = (1, 2, 4)
_LABELS: Final = {
    "queued": "jobs queued behind those that are timed",
    "logged": "rows in the job log",
    "scheduled": "jobs scheduled a year ahead",
    "workers": "worker processes",
    "held_snapshot": "jobs that passed before",
}
_LEGEND: Final = {"held_snapshot": "an old snapshot is held", "no_snapshot": "none is held"}
_HEADROOM: Final = 1.15


def measure(
    url: str,
    *,
    rows: int,
    jobs: int,
    passing: int,
    rounds: int,
    concurrency: int,
    progress: Callable[[str], Any],
) -> Series:
    """Points of all curves; a cell's name is ``curve@x``. The points of one x of the growing tables share rounds."""
    plan = Plan("orm", concurrency)
    series = Series()
    run = partial(run_rounds, rounds=rounds, progress=progress)
    with ExitStack() as stack:
        grown = {kind: stack.enter_context(arena(url)) for kind in _GROWING}
        free = stack.enter_context(arena(url))
        for fewer, more in _steps(rows):
            for kind, each in grown.items():
                load(each, kind, more, already=fewer)
            cells = [Cell(f"{kind}@{more}", jobs, partial(_in, each, plan)) for kind, each in grown.items()]
            series.samples |= run(cells, free).samples
        series.samples |= run([*_of_workers(plan, jobs), *_of_snapshots(plan, jobs, passing)], free).samples
    return series


def figures_of(series: Series) -> dict[str, float]:
    """The points, as ``plots.curve.x``."""
    found = {f"plots.{cell.replace('@', '.')}": median(series, cell, "jobs_per_s") for cell in series.samples}
    return {name: value for name, value in found.items() if value is not None}


def draw(curves: Mapping[str, Mapping[str, float]], folder: Path) -> list[Path]:
    """One SVG for each curve, those with and without a snapshot in one; needs matplotlib."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: [name] for name in (*_GROWING, "workers")} | {"snapshot": ["held_snapshot", "no_snapshot"]}
    return [_picture(folder / f"throughput-{name}.svg", curves, lines) for name, lines in pictures.items()]


def _picture(file: Path, curves: Mapping[str, Mapping[str, float]], lines: Sequence[str]) -> Path:
    from matplotlib.figure import Figure  # noqa: PLC0415 (of the dependency group bench)

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for name in lines:
        points = sorted((float(x), rate) for x, rate in curves.get(name, {}).items())
        axes.plot([x for x, _ in points], [rate for _, rate in points], marker="o", label=_LEGEND.get(name))
    if lines[0] in _GROWING:
        axes.set_xscale("symlog", linthresh=1_000)
    measured = sorted(map(float, curves.get(lines[0], {})))
    axes.set_xticks(measured, [f"{x:,.0f}" for x in measured])
    axes.minorticks_off()
    most = max((rate for name in lines for rate in curves.get(name, {}).values()), default=1.0)
    axes.set(xlabel=_LABELS[lines[0]], ylabel="jobs/s", ylim=(0, _HEADROOM * most))
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend()
    figure.savefig(file, metadata={"Date": None})
    return file


def _steps(rows: int) -> list[tuple[int, int]]:
    """From none over powers of ten to all."""
    levels = [0, *(level for level in (1_000, 10_000, 100_000) if level < rows), rows]
    return list(zip([0, *levels], levels, strict=False))


def _in(grown: Arena, plan: Plan, _arena: Arena, jobs: int) -> Sample:
    return worker_rate(plan, grown, jobs)


def _of_workers(plan: Plan, jobs: int) -> list[Cell]:
    drains = {count: Drain(work, (plan,), processes=count) for count in _WORKERS}
    return [Cell(f"workers@{count}", count * jobs, partial(drain, how)) for count, how in drains.items()]


def _of_snapshots(plan: Plan, jobs: int, passing: int) -> list[Cell]:
    return [
        Cell(f"{name}@{passed}", jobs, partial(drain_behind, plan, passed, held=held))
        for passed in (0, passing // 4, passing // 2, passing)
        for name, held in (("held_snapshot", True), ("no_snapshot", False))
    ]
