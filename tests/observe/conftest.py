"""Events as a worker emits them, and workers that emit them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue import ClaimedJob, TaskRegistry, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session
    from sqlalchemy.orm import sessionmaker as session_factory

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def job() -> Callable[..., ClaimedJob]:
    """Makes a claimed job; what matters to a test is given by name."""

    def make(**values: Any) -> ClaimedJob:
        plain = {"id": 7, "queue": "shop", "task": "book", "args": {}, "headers": {}, "priority": 0}
        counted = {
            "attempt": 1,
            "max_attempts": 5,
            "token": 1,
            "claimed_by": "w",
            "dedup_key": None,
            "unique_key": None,
        }
        times = {"lease_expires_at": _NOW + timedelta(seconds=30), "enqueued_at": _NOW, "claimed_at": _NOW}
        return ClaimedJob(**{**plain, **counted, **times, **values})

    return make


@pytest.fixture
def work(sessionmaker: session_factory[Session]) -> Callable[..., None]:
    """Drains the queues with one real worker that has these subscribers."""

    def run(tasks: TaskRegistry, *subscribers: Any) -> None:
        Worker(tasks, sessionmaker, concurrency=2, name="w", subscribers=subscribers).run(until_empty=True)

    return run
