"""What ``--quick`` leaves out must not be what the figures are made of."""

from __future__ import annotations

from benchmarks.figures import figures
from benchmarks.rounds import Sample, Series
from benchmarks.scale import QUICK, QUICK_CELLS, our_cells

_PROMISED = {
    *("orm.of_bare", "orm.jobs_per_s", "core.of_raw", "core.jobs_per_s", "async_orm.of_sync", "group.jobs_per_s"),
    *("batch.jobs_per_s", "batch.of_raw", "batch.of_bare_batch", "pickup_ms.p50", "pickup_ms.p99"),
    *("held_snapshot.of_normal", "bulk_enqueue.of_raw", "enqueue.of_own_insert"),
}
_VALUES = {"jobs_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0}


def test_a_quick_run_has_every_figure_that_is_promised() -> None:
    told = figures(Series({cell: [Sample(_VALUES)] for cell in QUICK_CELLS}))
    assert told.keys() >= _PROMISED


def test_every_quick_cell_exists() -> None:
    assert {cell.name for cell in our_cells(QUICK, 4)} >= set(QUICK_CELLS)
