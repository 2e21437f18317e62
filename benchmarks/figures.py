"""The figures that are told: medians of cells, and ratios between cells of the same round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rounds import Series, median, ratio

__all__ = ["FIGURES", "Figure", "figures", "nested"]


@dataclass(frozen=True, slots=True)
class Figure:
    """``name`` is a path with a dot; with ``over`` it is a ratio of two cells."""

    name: str
    cell: str
    over: str | None = None
    value: str = "jobs_per_s"

    def of(self, series: Series) -> float | None:
        """What it is, or None where a cell was not run."""
        if self.over is None:
            return median(series, self.cell, self.value)
        return ratio(series, self.cell, self.over, self.value)


_AGAINST: Final[Mapping[str, tuple[str, ...]]] = {
    "insert": (
        *("orm", "core", "core_session", "async_orm", "async_core", "async_core_session"),
        *("group", "group_flush", "core_group", "batch"),
    ),
    "noop": ("noop",),
    "enqueue": ("enqueue",),
    "bulk_enqueue": ("bulk_enqueue",),
}
"""Which cells of ours do the same work as a cell of a peer (``oban.insert``)."""
_RATED: Final = (
    *("orm", "bare", "orm_floor", "core", "bare_core", "core_floor", "core_session", "bare_core_session", "raw"),
    *(
        "naive",
        "noop",
        "no_dedup",
        "async_orm",
        "async_core",
        "async_core_session",
        "two_processes",
        "group",
        "group_flush",
        "core_group",
    ),
    *("batch", "raw_batch", "raw_batch_array", "bare_batch", "raw_unfenced"),
    *("pgbench_lease", "pgbench_one_statement"),
    *("enqueue", "own_insert", "bulk_enqueue", "copy", "held_snapshot", "no_snapshot"),
    *("hint", "hint_off", "hint_in_transaction"),
)
_RATIOS: Final = (
    ("orm.of_bare", "orm", "bare"),
    ("orm.of_floor", "orm", "orm_floor"),
    ("orm_floor.of_bare", "orm_floor", "bare"),
    ("orm.of_naive", "orm", "naive"),
    ("core.of_raw", "core", "raw"),
    ("core.of_floor", "core", "core_floor"),
    ("core_floor.of_raw", "core_floor", "raw"),
    ("core.of_bare", "core", "bare_core"),
    ("bare_core.of_raw", "bare_core", "raw"),
    ("core_session.of_raw", "core_session", "raw"),
    ("core_session.of_bare", "core_session", "bare_core_session"),
    ("bare_core_session.of_raw", "bare_core_session", "raw"),
    ("bare_batch.of_raw", "bare_batch", "raw_batch"),
    ("async_orm.of_sync", "async_orm", "orm"),
    ("async_core.of_sync", "async_core", "core"),
    ("async_core_session.of_sync", "async_core_session", "core_session"),
    ("two_processes.of_one", "two_processes", "orm"),
    ("group.of_orm", "group", "orm"),
    ("group_flush.of_orm", "group_flush", "orm"),
    ("core_group.of_raw", "core_group", "raw"),
    ("batch.of_raw", "batch", "raw_batch"),
    ("batch.of_raw_array", "batch", "raw_batch_array"),
    ("batch.of_bare_batch", "batch", "bare_batch"),
    ("no_dedup.of_orm", "no_dedup", "orm"),
    ("core.of_pgbench", "core", "pgbench_lease"),
    ("raw_unfenced.of_raw", "raw_unfenced", "raw"),
    ("enqueue.of_own_insert", "enqueue", "own_insert"),
    ("bulk_enqueue.of_raw", "bulk_enqueue", "copy"),
    ("held_snapshot.of_normal", "held_snapshot", "no_snapshot"),
    ("hint.of_off", "hint", "hint_off"),
    ("hint_in_transaction.of_off", "hint_in_transaction", "hint_off"),
)
_CPU: Final = (
    *(("orm", "bare"), ("core", "raw"), ("group", "bare"), ("core_group", "raw"), ("noop", "raw")),
    *(("batch", "raw_batch"), ("batch", "bare_batch")),
)
_PAIRED: Final = ("orm_paired", "core_paired")
FIGURES: Final = (
    *(Figure(f"{cell}.jobs_per_s", cell) for cell in _RATED),
    *(Figure(*each) for each in _RATIOS),
    *(Figure(f"{cell}.cpu_us", cell, value="cpu_us") for cell in dict.fromkeys(cell for cell, _ in _CPU)),
    *(Figure(f"{cell}.cpu_times_{limit}", cell, over=limit, value="cpu_us") for cell, limit in _CPU),
    Figure("held_snapshot.passing_of_normal", "held_snapshot", "no_snapshot", "passing_jobs_per_s"),
    *(Figure(f"pickup_ms.{each}", "pickup", value=f"{each}_ms") for each in ("p50", "p90", "p99")),
    *(Figure(f"{cell}.{value}", cell, value=value) for cell in _PAIRED for value in ("of_bare", "job_us", "bare_us")),
    Figure("idle.cpu", "idle", value="cpu"),
    Figure("idle.transactions", "idle", value="transactions"),
)


def figures(series: Series) -> dict[str, float]:
    """Every figure that this series has, by its path."""
    found = {figure.name: figure.of(series) for figure in (*FIGURES, *_of_peers(series))}
    return {name: value for name, value in found.items() if value is not None}


def _of_peers(series: Series) -> Iterator[Figure]:
    for cell in series.samples:
        peer, _, work = cell.partition(".")
        for ours in _AGAINST.get(work, ()):
            yield Figure(f"{ours}.of_{peer}", ours, over=cell)
        if work == "pickup":
            yield from (Figure(f"peers.{cell}_ms.{each}", cell, value=f"{each}_ms") for each in ("p50", "p90", "p99"))
        elif work:
            yield Figure(f"peers.{cell}.jobs_per_s", cell)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``{"orm.of_bare": 0.8}`` as ``{"orm": {"of_bare": 0.8}}``."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *branches, leaf = path.split(".")
        node = tree
        for branch in branches:
            node = node.setdefault(branch, {})
        node[leaf] = value
    return tree
