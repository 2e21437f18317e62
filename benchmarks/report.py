"""The answer of a command: one JSON object, or tables for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.figures import nested
from benchmarks.rounds import Series, median

__all__ = ["answer", "as_json", "show"]

_COLUMNS: Final = {
    "jobs_per_s": "jobs/s",
    "cpu_us": "client CPU µs/job",
    "wal_bytes": "WAL B/job",
    "commits": "commits/job",
    "dead_tuples": "dead tuples/job",
}


def answer(series: Series, told: Mapping[str, float], conditions: Mapping[str, Any]) -> dict[str, Any]:
    """The figures told, the cost of a job in each cell, whether every job had one effect, and the conditions."""
    costs = {cell: _costs(series, cell) for cell in series.samples}
    return {
        **nested(told),
        "exactly_once": series.exactly_once,
        "faults": series.faults,
        "cells": {cell: cost for cell, cost in costs.items() if cost},
        "conditions": conditions,
    }


def as_json(given: Mapping[str, Any]) -> str:
    """One line; numbers with four significant digits."""
    return json.dumps(_rounded(given), ensure_ascii=False)


def show(series: Series, told: Mapping[str, float], conditions: Mapping[str, Any], console: Console) -> None:
    """A table of cells, one of the ratios, and the conditions."""
    cells = Table("cell", *_COLUMNS.values(), "min - max jobs/s", title="medians of the rounds")
    for cell in series.samples:
        if cost := _costs(series, cell):
            cells.add_row(cell, *(_shown(cost.get(name)) for name in _COLUMNS), _range(series, cell))
    ratios = Table("figure", "value", title="figures; ratios are medians of those within a round")
    for name, value in told.items():
        if not name.endswith("_per_s"):
            ratios.add_row(name, _shown(value))
    console.print(cells, ratios)
    console.print("every job had exactly one effect" if series.exactly_once else f"FAULTS: {series.faults}")
    console.print(json.dumps(_rounded(conditions), ensure_ascii=False))


def _costs(series: Series, cell: str) -> dict[str, float]:
    found = {name: median(series, cell, name) for name in _COLUMNS}
    return {name: value for name, value in found.items() if value is not None}


def _range(series: Series, cell: str) -> str:
    rates = [run.values["jobs_per_s"] for run in series.samples[cell] if "jobs_per_s" in run.values]
    return f"{min(rates):,.0f} - {max(rates):,.0f}" if rates else ""


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 (a matter of taste)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    return value
