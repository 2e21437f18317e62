"""Telling an outage of the database once, not at every try."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.observe import Event, Outage, Recovered
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["PAUSE_BEFORE_SWEEP", "Outages", "Patience", "passing_over_outages"]

T = TypeVar("T")

_RECONNECT = Backoff(base=0.2, cap=10.0, jitter=0.2)
_RETRY = Backoff(base=0.1, cap=2.0, jitter=0.1)
PAUSE_BEFORE_SWEEP = 3.0
"""Seconds after an outage in which leases that ended meanwhile are left to their owners. In this time every worker that
lived through it, and tries again within ``_RETRY.cap``, has recorded how its runs ended and has extended its leases."""


@dataclass(slots=True)
class Outages:
    """The main loop's memory of how often in a row the database has not answered."""

    worker: str
    emit: Callable[[Event], None]
    failures: int = 0
    unanswered: bool = False
    """True from a failure until the next sign of life."""

    def failed(self, error: BaseException) -> float:
        """The database did not answer; the answer here is how many seconds to leave it alone."""
        self.failures += 1
        self.unanswered = True
        if self.failures == 1:
            self.emit(Outage(self.worker, error))
        return _RECONNECT.seconds(self.failures)

    def heard(self) -> None:
        """A sign of life, but no work done yet: what fails next is the same outage."""
        self.unanswered = False

    def answered(self) -> None:
        """The database does its work."""
        if self.failures:
            self.failures = 0
            self.emit(Recovered(self.worker))


class Patience:
    """Tries again what must be written, through an outage of any length, until the worker has no time left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._exhausted = False
        self._recoveries = 0

    def exhaust(self) -> None:
        """The worker stops: from now on everything is tried once."""
        with self._changed:
            self._exhausted = True
            self._changed.notify_all()

    def renew(self) -> None:
        """The database answers again: nobody needs to wait any longer."""
        with self._changed:
            self._recoveries += 1
            self._changed.notify_all()

    def through_outages(self, operation: Callable[[], T]) -> T:
        """The operation's result; its error, if that is no outage or there is no time left."""
        tries = 0
        while True:
            recoveries = self._recoveries
            try:
                return operation()
            except Exception as error:
                tries += 1
                if not is_outage(error) or not self._wait(_RETRY.seconds(tries), recoveries):
                    raise

    def _wait(self, pause: float, recoveries: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._exhausted or self._recoveries != recoveries, pause)
            return not self._exhausted


@contextmanager
def passing_over_outages() -> Iterator[None]:
    """For what is tried once, at the end, and may remain undone."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
