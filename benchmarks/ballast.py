"""Rows that a queue gathers over the years, and that no claim may have to look at."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from benchmarks.server import Arena

__all__ = ["KINDS", "NUMBERED_FROM", "load"]

_COLUMNS: Final = "queue, task, args"
_JOBS: Final = f"INSERT INTO jobqueue_job ({_COLUMNS}, status, visible_at, dedup_key)"
_EACH: Final = "FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n ORDER BY n"
_RECORD: Final = "'record', jsonb_build_object('n', n)"

KINDS: Final = {
    "queued": f"{_JOBS} SELECT 'default', {_RECORD}, 'queued', now(), 'record:' || n {_EACH}",
    "scheduled": f"{_JOBS} SELECT 'default', {_RECORD}, 'scheduled', now() + interval '1 year', 'record:' || n {_EACH}",
    "dedup_keys": f"INSERT INTO jobqueue_dedup_key (scope, key) SELECT 'record', 'old:' || n {_EACH}",
    "logged": "INSERT INTO jobqueue_job_log (job_id, queue, task, attempt, outcome, enqueued_at, claimed_at)"
    f" SELECT n, 'default', 'record', 1, 'done', now() - interval '1 day', now() - interval '1 day' {_EACH}",
    "dead": "INSERT INTO jobqueue_dead_letter (job_id, queue, task, args, priority, attempt, max_attempts, token,"
    " enqueued_at, reason) SELECT n, 'default', 'record', jsonb_build_object('n', n), 0, 5, 5, 5,"
    f" now() - interval '1 day', 'failed' {_EACH}",
    "another_queue": f"{_JOBS} SELECT 'huge', {_RECORD}, 'queued', now(), 'record:' || n {_EACH}",
}
"""Each kind of row, as the statement that makes rows numbered from ``:first`` to ``:last``."""

NUMBERED_FROM: Final = 100_000_000
"""Above every job that is measured."""


def load(arena: Arena, kind: str, rows: int, *, already: int = 0) -> None:
    """Bring the number of rows of a kind from ``already`` to ``rows``, with statistics and visibility as in service."""
    if rows > already:
        span = {"first": NUMBERED_FROM + already, "last": NUMBERED_FROM + rows - 1}
        arena.admin.execute(text(KINDS[kind]), span)
    arena.settle_down()
