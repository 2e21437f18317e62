"""What a worker does next, decided without a clock, a thread or a database of its own.

The runtime tells the machine what happened and what time it is (seconds of a monotonic clock); the machine answers how
many jobs to claim, whether to sweep, how long to wait, and whether the work is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["Machine", "Stopping"]

_LAST_WAIT = 0.05
"""Seconds between looks for the end of runs that were ended from outside."""


class Stopping(IntEnum):
    """How far a stop has gone."""

    NO = 0
    GRACEFUL = 1
    NOW = 2


@dataclass(slots=True)
class Machine:
    """The worker's state. Times are seconds of one monotonic clock.

    Args:
        concurrency: runs at the same time.
        poll_interval: pause between polls that found too little.
        sweep_interval: pause between sweeps.
        grace: how long a graceful stop waits for running handlers.
        drain: finish when nothing is left to do.
    """

    concurrency: int
    poll_interval: float
    sweep_interval: float
    grace: float
    drain: bool = False
    running: int = 0
    stopping: Stopping = Stopping.NO
    drained: bool = False
    _poll_at: float = field(default=0.0)
    _sweep_at: float = field(default=0.0)
    _stop_by: float | None = None

    @property
    def free(self) -> int:
        """Slots without a run."""
        return self.concurrency - self.running

    def wants_jobs(self, now: float) -> int:
        """How many jobs to claim now; 0 while full, stopping or between polls."""
        if self.stopping or now < self._poll_at:
            return 0
        return self.free

    def wants_sweep(self, now: float) -> bool:
        """Whether a sweep is due."""
        return not self.stopping and now >= self._sweep_at

    def claimed(self, found: int) -> None:
        """Jobs were claimed; each takes a slot."""
        self.running += found

    def polled(self, now: float) -> None:
        """Every queue was asked; if slots are left, the queues are empty for now."""
        if self.free:
            self._poll_at = now + self.poll_interval

    def swept(self, moved: int, now: float) -> None:
        """A sweep came back; what it moved may run at once."""
        self._sweep_at = now + self.sweep_interval
        if moved:
            self.woken(now)

    def woken(self, now: float) -> None:
        """There is a hint that a job may run: poll without waiting."""
        self._poll_at = min(self._poll_at, now)

    def outage(self, pause: float, now: float) -> None:
        """The database did not answer: leave it alone for ``pause`` seconds."""
        self._poll_at = self._sweep_at = now + pause

    def recovered(self, pause: float, now: float) -> None:
        """The database answers again: poll at once, but sweep only after ``pause`` seconds."""
        self._poll_at, self._sweep_at = now, now + pause

    def finished(self) -> None:
        """A run has left its slot."""
        self.running -= 1

    def stop(self, now: float) -> None:
        """The first call stops gracefully, the second at once."""
        if self.stopping is Stopping.NO:
            self.stopping = Stopping.GRACEFUL
            self._stop_by = now + self.grace
        else:
            self.stopping = Stopping.NOW
            self._stop_by = now

    def out_of_grace(self, now: float) -> bool:
        """Whether the runs that are left must be ended from outside."""
        return self._stop_by is not None and now >= self._stop_by

    def asks_if_empty(self, now: float) -> bool:
        """Whether a drain should look for work that others hold or that waits for a retry."""
        return self.drain and not self.stopping and not self.running and now < self._poll_at

    def done(self) -> bool:
        """Whether the loop is over."""
        return not self.running and (bool(self.stopping) or self.drained)

    def wait(self, now: float) -> float:
        """Seconds until something is due, if nothing happens before."""
        if self.done():
            return 0.0
        if self._stop_by is not None:
            return max(self._stop_by - now, _LAST_WAIT)
        due = self._sweep_at if not self.free else min(self._poll_at, self._sweep_at)
        return max(due - now, 0.0)
