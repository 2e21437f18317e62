"""The keeper: a thread and a connection of its own that extend leases, and end runs that must not go on.

It beats at a third of the visibility timeout, so that two beats may fail before a lease runs out, and it never shares a
connection with a handler, so that no handler can starve it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from sa_jobqueue.observe import Event, HeartbeatFailed
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.run import Condemned, Run
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["Keeper"]

_PATIENCE = 1.0
"""Seconds that a cancelled handler gets to end by itself before its session is terminated and its slot refilled."""
_LONGEST_TICK = 0.5
_LAST_BEAT = 5.0
"""Seconds that a beat which is under way gets to end when the worker stops."""


class Keeper(threading.Thread):
    """Holds the leases of the runs that it is given.

    Args:
        control: short transactions on a connection that only the keeper uses.
        shortest: the shortest visibility timeout in seconds among the tasks.
        emit: takes events.
        abandon: told of a run that did not end when asked to.
        fatal: told of an error that no later beat will cure; the worker must not go on without a keeper.
    """

    def __init__(
        self,
        control: Control,
        shortest: float,
        emit: Callable[[Event], None],
        abandon: Callable[[Run], None],
        fatal: Callable[[Exception], None],
    ) -> None:
        super().__init__(name="sa-jobqueue-keeper", daemon=True)
        self._control, self._emit, self._abandon, self._fatal = control, emit, abandon, fatal
        self._tick = min(shortest / 6, _LONGEST_TICK)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._held: set[Run] = set()
        self._doomed: dict[Run, float] = {}
        self._failing = False

    def hold(self, runs: Iterable[Run]) -> None:
        """Keep the leases of these runs from now on."""
        with self._lock:
            self._held.update(runs)

    def drop(self, runs: Iterable[Run]) -> None:
        """These runs have ended; their leases are no longer kept."""
        with self._lock:
            self._held.difference_update(runs)

    def close(self) -> None:
        """End the thread, unless the database holds it up; leases that are still held will run out."""
        self._closing.set()
        self.join(_LAST_BEAT)

    def run(self) -> None:
        """Beat until closed."""
        while not self._closing.wait(self._tick):
            with self._lock:
                held = [run for run in self._held if not run.finished]
            try:
                self._keep(held, time.monotonic())
            except Exception as error:  # noqa: BLE001 - the main loop is told, and raises it
                if not is_outage(error):
                    self._fatal(error)
                    return
                self._report(error)
            else:
                self._failing = False

    def end(self, run: Run, reason: Condemned) -> None:
        """Cancel what the handler does in the database, and its coroutine if it is one."""
        if run.condemn(reason):
            self._doomed[run] = time.monotonic() + _PATIENCE
            if run.interrupt is not None:
                run.interrupt()
            run.with_backend(lambda pid: self._control.end_backend(pid, terminate=False))

    def _keep(self, held: list[Run], now: float) -> None:
        self._beat([run for run in held if now - run.beaten >= run.task.visibility_timeout / 3 - self._tick], now)
        for run in held:
            if run.overdue(now):
                self.end(run, Condemned.TIME_LIMIT)
        for run in [run for run, patience in self._doomed.items() if now > patience]:
            if not run.finished:
                run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
                self._abandon(run)
            del self._doomed[run]

    def _beat(self, due: list[Run], now: float) -> None:
        if not due:
            return
        lost = set(self._control.heartbeat([(run.job, run.task.visibility_timeout) for run in due]))
        for run in due:
            run.beaten = now
            if run.job in lost and not run.settling:
                self.end(run, Condemned.LEASE_LOST)

    def _report(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self._emit(HeartbeatFailed(self._control.worker, error))
