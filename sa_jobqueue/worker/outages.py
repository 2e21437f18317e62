"""Telling an outage of the database once, not at every try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.observe import Event, Outage, Recovered
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["Outages", "passing_over_outages"]

_RECONNECT = Backoff(base=0.2, cap=10.0, jitter=0.2)


@dataclass(slots=True)
class Outages:
    """The main loop's memory of how often in a row the database has not answered."""

    worker: str
    emit: Callable[[Event], None]
    failures: int = 0

    def failed(self, error: BaseException) -> float:
        """The database did not answer; the answer here is how many seconds to leave it alone."""
        self.failures += 1
        if self.failures == 1:
            self.emit(Outage(self.worker, error))
        return _RECONNECT.seconds(self.failures)

    def answered(self) -> None:
        """The database has answered."""
        if self.failures:
            self.failures = 0
            self.emit(Recovered(self.worker))


@contextmanager
def passing_over_outages() -> Iterator[None]:
    """For what is tried once, at the end, and may remain undone."""
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
