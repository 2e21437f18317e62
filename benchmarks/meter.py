"""What a run cost the server: WAL, transactions and dead row versions, by its own counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import text

from benchmarks.server import Arena

__all__ = ["metering"]

_READ = text("""
    SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS wal_bytes,
           (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8 AS commits,
           (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables)::float8 AS dead_tuples
""")


@contextmanager
def metering(arena: Arena, jobs: int) -> Iterator[dict[str, float]]:
    """Fill the mapping at the end of the block, per job: ``wal_bytes``, ``commits``, ``dead_tuples``.

    Dead tuples are the row versions that were made dead (updates and deletes); autovacuum may have removed some since.
    The clients inside must have ended at the end of the block.
    """
    cost: dict[str, float] = {}
    before = _read(arena)
    yield cost
    arena.wait_for_quiet()
    after = _read(arena)
    cost.update({name: (after[name] - before[name]) / jobs for name in before})


def _read(arena: Arena) -> Mapping[str, float]:
    arena.admin.execute(text("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()"))
    return dict(arena.admin.execute(_READ).mappings().one())
