"""Did every job have exactly one effect? Asked of the database after every run, never of the worker."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import text

from benchmarks.server import Arena

__all__ = ["Counted", "count", "faults"]

_COUNT = text("""
    SELECT (SELECT count(*) FROM bench_effect) AS effects,
           (SELECT count(DISTINCT n) FROM bench_effect) AS distinct_effects,
           (SELECT count(*) FROM jobqueue_dedup_key) AS dedup_keys,
           (SELECT count(*) FROM jobqueue_job) AS jobs_left,
           (SELECT count(*) FROM jobqueue_dead_letter) AS dead_letters
""")


@dataclass(frozen=True, slots=True)
class Counted:
    """Rows of the tables; ``dedup_keys`` and ``effects`` are None where a cell is not asked for them."""

    effects: int | None
    distinct_effects: int | None
    dedup_keys: int | None
    jobs_left: int = 0
    dead_letters: int = 0

    @classmethod
    def once_each(cls, jobs: int, *, dedup: bool = True) -> Counted:
        """What a queue leaves that ran every job exactly once."""
        return cls(jobs, jobs, jobs if dedup else None)


def count(arena: Arena) -> Counted:
    """What is in the tables now."""
    return Counted(**arena.admin.execute(_COUNT).mappings().one())


def faults(arena: Arena, expected: Counted) -> tuple[str, ...]:
    """What is not as it must be, as sentences; empty if every job had one effect."""
    found = asdict(count(arena))
    return tuple(
        f"{name}: {found[name]}, expected {wanted}"
        for name, wanted in asdict(expected).items()
        if wanted is not None and found[name] != wanted
    )
