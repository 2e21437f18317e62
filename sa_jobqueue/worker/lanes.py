"""What the loop remembers of the queues that it serves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from sa_jobqueue.exchange import Place
from sa_jobqueue.hints import DEBOUNCE
from sa_jobqueue.statements import hint
from sa_jobqueue.values import ClaimedJob

__all__ = ["Lane", "Lanes"]

_FULL_PASS = 1.0
"""Seconds after which a claim begins at the head of its queue again, where stragglers and retries may be."""
_ECHO = DEBOUNCE * 1.2


@dataclass(slots=True)
class Lane:
    """One queue: the visibility timeout in seconds of each task, and how many jobs a slot may take at once.

    A claim goes on behind the last one. What has died in front of that place is not walked again, which matters while
    somebody holds an old snapshot and vacuum can remove nothing.
    """

    queue: str
    leases: Mapping[str, float]
    breadth: int = 1
    ready: bool = False
    """Whether a claim may find something."""
    held: int = 0
    """Jobs that were claimed from it and have not ended."""
    again_at: float | None = None
    """When to claim once more after a hint: its sender may have kept another one back since."""
    _behind: Place | None = None
    _full_pass_at: float = 0.0

    def hinted(self, now: float) -> None:
        """There is a hint of a new job."""
        self.ready, self.again_at = True, now + _ECHO

    def stirs(self, now: float) -> None:
        """The time has come to claim once more after a hint."""
        if self.again_at is not None and now >= self.again_at:
            self.ready, self.again_at = True, None

    def begins(self, now: float) -> Place | None:
        """The place behind which the next claim looks; None: from the head of the queue."""
        if self._behind is None or now >= self._full_pass_at + _FULL_PASS:
            self._behind, self._full_pass_at = None, now
        return self._behind

    def came(self, jobs: Sequence[ClaimedJob], asked: int) -> None:
        """A claim has answered. If it came short, a pass from the head tells whether there is nothing more."""
        self.held += len(jobs)
        if len(jobs) >= asked:
            self._behind = Place.of(jobs[-1])
        else:
            self.ready = self._behind is not None
            self._behind = None


class Lanes:
    """All of them, by the name of the queue."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        self._lanes = {lane.queue: lane for lane in lanes}
        self._turn = 0

    def __getitem__(self, queue: str) -> Lane:
        return self._lanes[queue]

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def queues(self) -> list[str]:
        """Their names."""
        return list(self._lanes)

    @property
    def ready(self) -> bool:
        """Whether a claim from any of them may find something."""
        return any(lane.ready for lane in self)

    def in_turn(self) -> Iterable[Lane]:
        """All, and a different one first at each call."""
        self._turn += 1
        lanes = deque(self)
        lanes.rotate(self._turn)
        return lanes

    def hinted(self, mark: str | None, now: float) -> None:
        """There is a hint of a new job in the queue with that mark, or (None) in any."""
        for lane in self:
            if mark is None or mark == hint.mark(lane.queue):
                lane.hinted(now)

    def stir(self, now: float) -> None:
        """Claim once more from those whose time has come after a hint."""
        for lane in self:
            lane.stirs(now)

    def stir_in(self, now: float) -> float:
        """Seconds until the next one stirs; infinite if none does."""
        return min((lane.again_at - now for lane in self if lane.again_at is not None), default=inf)
