"""The prune from its begin to its end: the one place above the session that commits, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.errors import PruneUnfinished
from sa_jobqueue.models import Models
from sa_jobqueue.retention import PRUNE_LIMIT, Pruned, Retention, check_limit
from sa_jobqueue.session import JobSession

__all__ = ["prune"]

_SMALLER = 4
_FAILURES_IN_A_ROW = 4

Sessions = Callable[[], AbstractContextManager[Session]]


def prune(
    new_session: Sessions, retention: Retention, *, limit: int = PRUNE_LIMIT, models: Models | None = None
) -> Pruned:
    """Delete all that is older than ``retention`` says; safe to run from cron, and twice at once.

    A batch that fails (``statement_timeout``, a deadlock, a lost connection) is rolled back and tried again in smaller
    pieces. A table that fails four times in a row is left for the next prune; the others are pruned all the same.

    Args:
        new_session: the application's ``sessionmaker``; each batch has a session and a transaction of its own.
        retention: what to prune, and from which age on.
        limit: rows of one batch.
        models: the mapped classes, if they are not the ready-made ones.

    Raises:
        InvalidArgument: ``limit`` is out of range.
        PruneUnfinished: some tables were left; what was committed stays, ``counts`` says how much that is.
    """
    check_limit(limit)
    total, errors = Pruned(), {}
    for what, age in retention.ages.items():
        walk = _Walk(new_session, what, age, limit, models)
        try:
            walk.to_the_end()
        except DBAPIError as error:
            errors[what] = error
        total += walk.pruned
    if errors:
        raise PruneUnfinished(total.counts, errors) from next(iter(errors.values()))
    return total


class _Walk:
    """The prune of one kind of rows: batch after batch, each committed; after a failure all are smaller."""

    def __init__(self, new_session: Sessions, what: str, age: timedelta, limit: int, models: Models | None) -> None:
        only: dict[str, Any] = {what: age}
        self.pruned = Pruned()
        self._new_session, self._retention, self._limit, self._models = new_session, Retention(**only), limit, models
        self._last: Pruned | None = None

    def to_the_end(self) -> None:
        """Raise the last error of a batch that fails too often."""
        failures = 0
        while self._last is None or self._last.more:
            try:
                self._batch()
                failures = 0
            except DBAPIError:
                failures += 1
                self._limit = max(1, self._limit // _SMALLER)
                if failures == _FAILURES_IN_A_ROW:
                    raise

    def _batch(self) -> None:
        with self._new_session() as session, session.begin():
            jobs = JobSession(session, models=self._models)
            last = jobs.prune(self._retention, limit=self._limit, behind=self._last)
        self._last = last
        self.pruned += last
