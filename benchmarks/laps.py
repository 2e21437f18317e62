"""When the work of a process began and ended.

**What is timed:** from the start of the first handler after the warm-up (``WARM`` jobs, or ``WARM_LOADS`` batches or
groups: connections are made, statements compiled and prepared) to the moment at which the last job is known to be
committed. Importing, the first claim, and the end of the process are outside. All processes of a machine share the
clock, so laps of several add up.

CPU is that of the whole process, every thread of it, user and system, between the same two moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["WARM", "WARM_LOADS", "Lap", "Stopwatch", "together"]

WARM: Final = 100
"""Jobs whose start does not start the watch."""
WARM_LOADS: Final = 20
"""The same for batches and groups: a job of theirs is no round trip of its own, so a hundred jobs warm nothing up."""


@dataclass(frozen=True, slots=True)
class Lap:
    """``began`` and ``ended`` are seconds of the monotonic clock, ``cpu`` is seconds of this process."""

    jobs: int
    began: float
    ended: float
    cpu: float

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second of wall time."""
        return self.jobs / (self.ended - self.began)

    @property
    def cpu_us(self) -> float:
        """Client CPU of one job in microseconds."""
        return self.cpu / self.jobs * 1e6


def together(laps: Sequence[Lap]) -> Lap:
    """The lap of several processes at once: from the first start to the last end."""
    return Lap(
        jobs=sum(lap.jobs for lap in laps),
        began=min(lap.began for lap in laps),
        ended=max(lap.ended for lap in laps),
        cpu=sum(lap.cpu for lap in laps),
    )


class Stopwatch:
    """Counts starts and ends of jobs, from any thread; ``seen`` is how many have started."""

    def __init__(self, warm: int = WARM) -> None:
        self.seen = 0
        self._warm, self._skipped = warm, 0
        self._lock = threading.Lock()
        self._began: tuple[float, float] | None = None
        self._ended = (0.0, 0.0)

    def started(self, jobs: int = 1) -> None:
        """The handler of one job, or of a batch of them, begins."""
        with self._lock:
            if self._began is None and self.seen >= self._warm:
                self._skipped, self._began = self.seen, _now()
            self.seen += jobs

    def ended(self) -> None:
        """A commit has returned."""
        self._ended = _now()

    def lap(self) -> Lap:
        """What was measured.

        Raises:
            RuntimeError: too few jobs to get beyond the warm-up.
        """
        if self._began is None or self._ended[0] <= self._began[0]:
            msg = f"{self.seen} jobs are too few: the watch starts after {self._warm}"
            raise RuntimeError(msg)
        (began, cpu_began), (ended, cpu_ended) = self._began, self._ended
        return Lap(self.seen - self._skipped, began, ended, cpu_ended - cpu_began)

    def state(self) -> dict[str, float]:
        """What is known so far, for a harness that learns from elsewhere when the work ended."""
        began, cpu_began = self._began or (0.0, 0.0)
        return {"began": began, "skipped": self._skipped, "started": self.seen, "cpu": self._ended[1] - cpu_began}


def _now() -> tuple[float, float]:
    return time.monotonic(), time.process_time()
