"""What a worker does next, decided without a clock, a thread or a database of its own.

The runtime tells the machine what happened and what time it is (seconds of a monotonic clock); the machine answers how
many jobs to claim, whether to look at the queues, how long to wait, and whether the work is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Machine", "Stopping", "few_sizes"]

_LAST_WAIT = 0.05
"""Seconds between looks for the end of runs that were ended from outside."""
_HORIZON = 0.5
"""Seconds of work, by the time that jobs have taken, which are claimed ahead of free slots."""
_MOST_AHEAD = 1_000
_LONGEST_IN_LINE = 2.0
"""Seconds after which a claimed job that still waits for a slot is given back."""
_LEAST_ROUNDED = 16
_MEMORY = 32
"""Jobs over which the time that one takes is smoothed."""
_FIRST_PAUSE = 0.02
_SHORTEST_PAUSE = 0.01
"""Seconds before the first look after there was work, which then double; and before a look at what is about due."""


def few_sizes(wanted: int) -> int:
    """A claim of about as many: large ones have the size of a power of two, so that the server has each prepared."""
    return wanted if wanted < _LEAST_ROUNDED else 1 << (wanted.bit_length() - 1)


class Stopping(IntEnum):
    """How far a stop has gone."""

    NO = 0
    GRACEFUL = 1
    NOW = 2


@dataclass(slots=True)
class Machine:
    """The worker's state. Times are seconds of one monotonic clock.

    Args:
        concurrency: turns at the same time.
        poll_interval: pause between looks at queues in which nothing happens.
        sweep_interval: pause between looks while there is work: for what becomes due.
        grace: how long a graceful stop waits for running handlers.
        drain: finish when nothing is left to do.
    """

    concurrency: int
    poll_interval: float
    sweep_interval: float
    grace: float
    drain: bool = False
    held: int = 0
    """Jobs that are claimed and have not ended: they run, or wait for a slot."""
    stopping: Stopping = Stopping.NO
    drained: bool = False
    listening: bool = False
    """Whether hints of new jobs arrive, so that looks need not be frequent."""
    seconds: float | None = None
    """How long a slot is taken by one job, smoothed; None before the first has ended."""
    _busy: bool = False
    _pause: float = _FIRST_PAUSE
    _look_at: float = 0.0
    _quiet_until: float = 0.0
    _stop_by: float | None = None

    @property
    def ahead(self) -> int:
        """How many jobs to claim beyond the free slots; none while jobs take long."""
        if self.seconds is None:
            return 0
        return int(min(self.concurrency * _HORIZON / max(self.seconds, 1e-6), _MOST_AHEAD))

    @property
    def low_water(self) -> int:
        """How many claimed jobs may wait for a slot before more are claimed: claims are few, and large."""
        return self.ahead // 2

    def room(self, now: float, breadth: int = 1, *, in_line: bool = True) -> int:
        """How many jobs may be claimed now from a queue, if a slot takes ``breadth`` of them.

        A queue that has nothing ``in_line`` may claim for one turn, however much others have claimed ahead.
        """
        slots = self.concurrency * breadth
        if self.stopping or now < self._quiet_until:
            return 0
        least = 0 if in_line or not self.ahead else breadth
        if self.held > slots + self.low_water:
            return least
        return max(slots + self.ahead - self.held, least)

    def claimed(self, found: int) -> None:
        """Jobs were claimed."""
        self.held += found
        self._busy = self._busy or found > 0

    def let_go(self, count: int) -> None:
        """Jobs have ended, or were given back."""
        self.held -= count

    def took(self, seconds: float) -> None:
        """A job that has ended took a slot for so long."""
        before = seconds if self.seconds is None else self.seconds
        self.seconds = before + (seconds - before) / _MEMORY

    def looks(self, now: float) -> bool:
        """Whether to look at the queues: what is ready, what is due."""
        return not self.stopping and now >= self._look_at

    def looked(self, now: float, *, found: bool, due_in: float | None) -> None:
        """The queues were looked at; ``due_in`` seconds from now something will be due (None: nothing is known of)."""
        if found:
            self._pause = self.sweep_interval
        else:
            self._pause = self.poll_interval if self.listening else min(self._pause * 2, self.poll_interval)
        next_due = self._pause if due_in is None else max(due_in, _SHORTEST_PAUSE)
        self._look_at = now + min(self._pause, next_due)

    def ran_dry(self, now: float) -> None:
        """No queue has anything more. After work there may be more in a moment, so the next looks follow soon."""
        if self._busy:
            self._busy = False
            self._pause = min(_FIRST_PAUSE, self.poll_interval)
            self._look_at = min(self._look_at, now + self._pause)

    def outage(self, pause: float, now: float) -> None:
        """The database did not answer: leave it alone for ``pause`` seconds, then look at everything."""
        self._look_at = self._quiet_until = now + pause

    def in_line_too_long(self, now: float) -> float:
        """Jobs that wait for a slot since before this instant are to be given back."""
        return now - _LONGEST_IN_LINE

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
        return self.drain and not self.stopping and not self.held and now < self._look_at

    def done(self) -> bool:
        """Whether the loop is over."""
        return not self.held and (bool(self.stopping) or self.drained)

    def wait(self, now: float) -> float:
        """Seconds until something is due, if nothing happens before."""
        if self.done():
            return 0.0
        if self._stop_by is not None:
            return max(self._stop_by - now, _LAST_WAIT)
        due = max(self._look_at - now, 0.0)
        return due if self.held <= self.concurrency else min(due, _LONGEST_IN_LINE)
