"""What a worker counts between two writes to the rollup."""

from __future__ import annotations

import threading
from collections import Counter
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
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ran(self, job: ClaimedJob, outcome: Outcome, seconds: float) -> None:
        """A run ended; its time counts whatever the outcome, except for duplicates, which did not run."""
        with self._lock:
            self._counter[job.queue, job.task, outcome, OUTCOME] += 1
            if outcome is not Outcome.DUPLICATE:
                self._counter[job.queue, job.task, SECONDS, bucket_of(seconds)] += 1

    def write(self, add: Callable[[Counts], None]) -> None:
        """Hand all counts to ``add`` and start anew; if it raises, they are kept for the next time."""
        with self._lock:
            counter, self._counter = self._counter, Counter()
        try:
            if counter:
                add(Counts(counter))
        except BaseException:
            with self._lock:
                self._counter.update(counter)
            raise
