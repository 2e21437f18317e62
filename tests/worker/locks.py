"""Somebody else holds a lock."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

ADVISORY_LOCK = "SELECT pg_advisory_xact_lock(1)"
"""A lock that a handler can wait for, and nothing else of the worker."""
LOCK_OF_ALL_JOBS = "LOCK jobqueue_job IN ACCESS EXCLUSIVE MODE"
"""The worker's own statements wait for it."""
LOCKS_OF_JOB_ROWS = "SELECT 1 FROM jobqueue_job FOR UPDATE"
"""Claims and heartbeats pass them by; the record of how a run ended waits."""


@contextmanager
def held(engine: Engine, lock: str) -> Iterator[None]:
    """Another session takes it, and keeps it while the block runs."""
    with engine.begin() as connection:
        connection.execute(text(lock))
        yield
