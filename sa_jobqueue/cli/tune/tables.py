"""Of our tables: storage parameters, signs of bloat, and what only grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sa_jobqueue.cli.tune.observed import Figures, Observation, Recommendation, Table
from sa_jobqueue.cli.tune.rounding import percent
from sa_jobqueue.models import TURNOVER, DedupKey, Job, JobLog, Rollup
from sa_jobqueue.states import Outcome

__all__ = ["tables"]

_MB: Final = 2**20
_SMALL: Final = 64 * _MB
_LARGE: Final = 1024 * _MB
_BLOATED: Final = 4
_ROW: Final = 28
"""Bytes that a row takes beside its values: line pointer and header."""
_ENTRIES: Final = 150
"""Bytes of a job's entries in its indexes, generously."""
_MANY_ROWS: Final = 1_000_000
_MOSTLY: Final = 0.5
_TYPICAL: Final = 600.0
"""Seconds of counts from which on a month is worth an extrapolation."""
_MONTH: Final = 30 * 86_400.0
_REASONS: Final = {
    "fillfactor": "room on each page for new versions of its rows",
    "autovacuum_vacuum_scale_factor": "vacuum comes when a hundredth of the rows has died, not a fifth",
    "autovacuum_vacuum_threshold": "a nearly empty table is not vacuumed all the time",
    "autovacuum_vacuum_insert_scale_factor": "bursts of new jobs are seen by vacuum too",
    "autovacuum_analyze_scale_factor": "the planner must not believe in yesterday's backlog",
    "autovacuum_vacuum_cost_delay": "vacuum of this table does not pause: it must keep up with the workers",
}


def tables(seen: Observation) -> Iterator[Recommendation]:
    """Whatever the tables that could be seen give reason to."""
    if job := seen.tables.get(Job.__tablename__):
        yield from _storage(job)
        yield from _bloat(job)
    yield from _dedup_keys(seen)
    for name, option in ((JobLog.__tablename__, "--job-log"), (Rollup.__tablename__, "--rollup")):
        if (table := seen.tables.get(name)) and table.heap + table.indexes >= _LARGE:
            yield _grown(table, f"prune what nobody will ask for any more: sa-jobqueue prune {option}", {})


def _storage(job: Table) -> Iterator[Recommendation]:
    """What the tables were made with; only what is unset, or lazier than that, is worth a word."""
    for name, shipped in TURNOVER.items():
        now = job.options.get(name)
        if now is None or float(now) > float(shipped):
            yield _of(job, name, now or "default", shipped, _REASONS[name], {})


def _bloat(job: Table) -> Iterator[Recommendation]:
    if job.width is not None:
        needed = job.live * (job.width + _ROW) / float(TURNOVER["fillfactor"]) * 100
        if job.heap >= _SMALL and job.heap > _BLOATED * needed:
            why = f"{job.live:,} rows need {_size(needed)}. It locks the table: in a quiet minute"
            figures = {"bytes": job.heap, "needed": needed}
            yield _of(job, "bloat", _size(job.heap), "VACUUM FULL", why, figures)
    needed = job.live * _ENTRIES
    if job.indexes >= _SMALL and job.indexes > _BLOATED * needed:
        why = f"indexes of {job.live:,} rows need {_size(needed)}, and claims walk them"
        figures = {"bytes": job.indexes, "needed": needed}
        yield _of(job, "index_bloat", _size(job.indexes), "REINDEX TABLE CONCURRENTLY", why, figures)


def _dedup_keys(seen: Observation) -> Iterator[Recommendation]:
    keys = seen.tables.get(DedupKey.__tablename__)
    done = sum(task.count(Outcome.DONE) for task in seen.tasks)
    monthly = done / seen.counted * _MONTH if seen.counted >= _TYPICAL else 0.0
    size = keys.heap + keys.indexes if keys else 0
    if keys is None or (monthly < _MANY_ROWS and size < _LARGE):
        return
    each = size / keys.live if keys.live else None
    why = f"it has {_size(size)}"
    if monthly:
        growth = f" ({_size(monthly * each)})" if each else ""
        why += f", and {monthly:,.0f} rows a month{growth} come along at the rate of this window"
    figures = {"bytes": size, "rows_a_month": monthly, "bytes_a_row": each, "own_keys": seen.own_keys}
    if seen.own_keys is not None and seen.own_keys >= _MOSTLY:
        said = (
            f"{percent(seen.own_keys)} of its keys are no natural ones; the fence alone keeps such jobs to one effect"
        )
        yield Recommendation("workers", "", "natural_keys_only", "False", "True", f"{said}; {why}", figures)
    else:
        advice = "Prune keys that are older than a sender's last repetition: sa-jobqueue prune --dedup-keys"
        yield _grown(keys, f"{why}. {advice}", figures)


def _grown(table: Table, why: str, figures: Figures) -> Recommendation:
    size = table.heap + table.indexes
    return _of(table, "retention", "for ever", "a limit", why, {"bytes": size, **figures})


def _of(table: Table, setting: str, now: str | None, wanted: str, why: str, figures: Figures) -> Recommendation:
    return Recommendation("table", table.name, setting, now, wanted, why, figures)


def _size(count: float) -> str:
    return f"{count / _LARGE:,.1f} GB" if count >= _LARGE else f"{count / _MB:,.0f} MB"
