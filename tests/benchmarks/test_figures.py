"""Medians, ratios within a round, and the shape of the answer."""

from __future__ import annotations

import json

from benchmarks.figures import figures, nested
from benchmarks.report import as_json
from benchmarks.rounds import Sample, Series, ratio


def _series(**rates: list[float]) -> Series:
    return Series({cell: [Sample({"jobs_per_s": rate}) for rate in each] for cell, each in rates.items()})


def test_a_ratio_is_taken_within_each_round() -> None:
    series = _series(orm=[90.0, 9.0, 60.0], bare=[100.0, 10.0, 100.0])
    assert ratio(series, "orm", "bare", "jobs_per_s") == 0.9


def test_a_cell_that_was_not_run_leaves_its_figures_out() -> None:
    assert figures(_series(orm=[90.0], bare=[100.0])) == {
        "orm.jobs_per_s": 90.0,
        "bare.jobs_per_s": 100.0,
        "orm.of_bare": 0.9,
    }


def test_the_figures_are_nested_by_their_dots() -> None:
    assert nested({"orm.of_bare": 0.9, "orm.jobs_per_s": 1, "exactly_once": True}) == {
        "orm": {"of_bare": 0.9, "jobs_per_s": 1},
        "exactly_once": True,
    }


def test_json_is_one_line_with_four_digits() -> None:
    assert json.loads(as_json({"orm": {"of_bare": 1 / 3}, "jobs": {"orm": 4_000}})) == {
        "orm": {"of_bare": 0.3333},
        "jobs": {"orm": 4_000},
    }
