"""Who runs, and who waits for a turn: shared by the loop that claims jobs and the threads that end them.

Claimed jobs wait here, so that a slot that comes free is filled at once, by whoever made it free. Each queue has a line
of its own, and the lines take turns: a job does not wait for the backlog of another queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from sa_jobqueue.worker.run import Load, Run

__all__ = ["Turns"]


class Turns:
    """``slots`` loads at a time.

    Args:
        slots: how many loads run at the same time.
        hungry: called when no more than ``low_water`` runs wait, from any thread; once until :meth:`heard`.
    """

    def __init__(self, slots: int, hungry: Callable[[], None]) -> None:
        self.low_water = 0
        self._free, self._hungry = slots, hungry
        self._told = False
        self._waiting = _Lines()
        self._lock = threading.Lock()

    def add(self, runs: Iterable[Run]) -> list[Load]:
        """Let runs wait in line; the answer is what to start now, in slots that are free."""
        with self._lock:
            self._waiting.extend(runs)
            loads = []
            while self._free and len(self._waiting):
                self._free -= 1
                loads.append(self._take())
            return loads

    def next(self) -> Load | None:
        """A slot has come free: what to start in it now. None: nothing, and it stays free."""
        with self._lock:
            load = self._take() if len(self._waiting) else None
            self._free += load is None
            hungry = len(self._waiting) <= self.low_water and not self._told
            self._told = self._told or hungry
        if hungry:
            self._hungry()
        return load

    def heard(self) -> None:
        """Whoever is told of hunger is awake, and looks at everything that happened before this call."""
        self._told = False

    def withdraw(self, *, claimed_before: float | None = None) -> list[Run]:
        """Take runs out of the line that have waited since before an instant of the monotonic clock, or all."""
        with self._lock:
            return self._waiting.withdraw(claimed_before)

    def _take(self) -> Load:
        """The first in line, with those behind it that may share its transaction."""
        first = self._waiting.pop()
        runs = [first]
        most = first.task.together
        if most > 1 and _shares(first):
            runs += self._waiting.companions(first, most - 1)
        return _loaded(runs)


class _Lines:
    """Runs that wait, by queue; the queue whose turn is next comes first."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Run]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def extend(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._lines.setdefault(run.job.queue, deque()).append(run)
            self._length += 1

    def pop(self) -> Run:
        """The first of the queue whose turn it is, which then has the last turn."""
        queue = next(iter(self._lines))
        line = self._lines.pop(queue)
        self._length -= 1
        run = line.popleft()
        if line:
            self._lines[queue] = line
        return run

    def companions(self, first: Run, most: int) -> list[Run]:
        """Those of its queue that may share the transaction of ``first``, which is out of line already."""
        line = self._lines.pop(first.job.queue, None) or deque[Run]()
        found: list[Run] = []
        rest: deque[Run] = deque()
        while line and len(found) < most:
            run = line.popleft()
            (found if run.task is first.task and _shares(run) else rest).append(run)
        line.extendleft(reversed(rest))
        if line:
            self._lines[first.job.queue] = line
        self._length -= len(found)
        return found

    def withdraw(self, claimed_before: float | None) -> list[Run]:
        """Take those out that have waited since before an instant of the monotonic clock, or all."""
        waiting = [run for line in self._lines.values() for run in line]
        out = [run for run in waiting if claimed_before is None or run.started < claimed_before]
        if out:
            self._lines.clear()
            self._length = 0
            self.extend(run for run in waiting if run not in set(out))
        return out


def _shares(run: Run) -> bool:
    """A duplicate has nothing to commit; and a job that was tried before may be one that kills its process."""
    return not run.job.duplicate and run.job.attempt == 1


def _loaded(runs: list[Run]) -> Load:
    load = Load(runs)
    for run in runs:
        run.load = load
    return load
