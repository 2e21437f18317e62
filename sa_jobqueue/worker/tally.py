"""What a worker counts between two writes to the rollup."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sa_jobqueue.histogram import bucket_of
from sa_jobqueue.statements.rollup import OUTCOME, SECONDS
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob

__all__ = ["Counts", "Tally"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by queue, task, metric and bucket."""

    counter: Counter[tuple[str, str, str, int]]

    def as_arrays(self) -> dict[str, list[object]]:
        """The parameters of the rollup statement, in one order for all workers."""
        rows = [(*key, count) for key, count in sorted(self.counter.items())]
        names = ("queues", "tasks", "metrics", "buckets", "counts")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}


@dataclass(slots=True)
class Tally:
    """Counters that handler threads add to and the main loop takes away."""

    _counter: Counter[tuple[str, str, str, int]] = field(default_factory=Counter)
    _ended: deque[tuple[str, str, Outcome, float]] = field(default_factory=deque)

    def ran(self, job: ClaimedJob, outcome: Outcome, seconds: float) -> None:
        """A run ended; from any thread, and counted later: what is done at once for many is done quickly."""
        self._ended.append((job.queue, job.task, outcome, seconds))

    def write(self, add: Callable[[Counts], None]) -> None:
        """Hand all counts to ``add`` and start anew; if it raises, they are kept for the next time."""
        while self._ended:
            self._count(*self._ended.popleft())
        if self._counter:
            add(Counts(self._counter))
            self._counter = Counter()

    def _count(self, queue: str, task: str, outcome: Outcome, seconds: float) -> None:
        """A run's time counts whatever its outcome, except for duplicates, which did not run."""
        self._counter[queue, task, outcome, OUTCOME] += 1
        if outcome is not Outcome.DUPLICATE:
            self._counter[queue, task, SECONDS, bucket_of(seconds)] += 1
