"""Which worker processes there should be, decided without a clock, a process or a signal of its own.

The supervisor tells the roster what happened and what time it is (seconds of a monotonic clock); the roster answers
which places to fill, how long to wait, whether all is over, and with which exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sa_jobqueue.backoff import Backoff

__all__ = ["STEADY", "TRIES", "Place", "Roster"]

STEADY = 60.0
"""Seconds that a process must have served for its death to be the first one again."""
TRIES = 3
"""Deaths that are taken for bad luck when no process has ever served."""
MISUSED = 2
"""The exit code of a mistake that another try would only repeat."""
_RESTART = Backoff(base=0.25, cap=30.0, jitter=0.25)


@dataclass(slots=True, eq=False)
class Place:
    """One of the processes that there should be, and who fills the place now."""

    due: float | None = 0.0
    """When to fill it; None while it is filled, and once it is not to be filled any more."""
    alive: bool = False
    serving_since: float | None = None
    deaths: int = 0
    """In a row, each one after a short life."""


@dataclass(slots=True)
class Roster:
    """The places of one supervisor.

    Args:
        processes: how many there should be.
        until_empty: a process that ends by itself with code 0 has found the queues empty, and is not replaced.
        backoff: how long a place stays empty after each quick death in a row.
    """

    processes: int
    until_empty: bool = False
    backoff: Backoff = _RESTART
    code: int = 0
    """The exit code of the whole."""
    gave_up: bool = False
    """True if no process could be brought to serve."""
    stopping: bool = False
    served: bool = False
    _deaths_before: int = 0
    places: list[Place] = field(init=False)

    def __post_init__(self) -> None:
        self.places = [Place() for _ in range(self.processes)]

    def to_fill(self, now: float) -> list[Place]:
        """The places whose time has come."""
        return [place for place in self.places if place.due is not None and place.due <= now]

    def filled(self, place: Place) -> None:
        """A process was started."""
        place.due, place.alive, place.serving_since = None, True, None

    def serving(self, place: Place, now: float) -> None:
        """Its worker has begun to poll."""
        place.serving_since, self.served = now, True

    def ended(self, place: Place, code: int, now: float) -> float | None:
        """A process has ended; the answer is in how many seconds it is replaced, or None if it is not."""
        place.alive = False
        if self.stopping or (self.until_empty and code == 0):
            return None
        if self._hopeless(code):
            self._give_up(code)
            return None
        if place.serving_since is not None and now - place.serving_since >= STEADY:
            place.deaths = 0
        place.deaths += 1
        pause = self.backoff.seconds(place.deaths)
        place.due = now + pause
        return pause

    def stop(self) -> None:
        """Fill no place any more."""
        self.stopping = True
        for place in self.places:
            place.due = None

    def killed(self) -> None:
        """A process had to be killed because it would not stop."""
        self.code = self.code or 1

    def done(self) -> bool:
        """Whether nobody is there and nobody will be."""
        return all(place.due is None and not place.alive for place in self.places)

    def wait(self, now: float) -> float | None:
        """Seconds until a place is to be filled; None if there is none."""
        due = [place.due for place in self.places if place.due is not None]
        return max(min(due) - now, 0.0) if due else None

    def _hopeless(self, code: int) -> bool:
        if self.served:
            return False
        self._deaths_before += 1
        return code == MISUSED or self._deaths_before >= TRIES

    def _give_up(self, code: int) -> None:
        self.gave_up, self.code = True, 128 - code if code < 0 else code or 1
        self.stop()
