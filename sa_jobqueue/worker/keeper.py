"""The keeper: a thread and a connection of its own that extend leases, and end runs that must not go on.

It beats at a third of the visibility timeout, so that two beats may fail before a lease runs out, and it never shares a
connection with a handler, so that no handler can starve it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from sa_jobqueue.observe import Event, HeartbeatFailed
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.outages import passing_over_outages
from sa_jobqueue.worker.run import Condemned, Run
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["Keeper"]

_PATIENCE = 1.0
"""Seconds that a cancelled handler gets to end by itself before its session is terminated and its slot refilled."""
_LONGEST_TICK = 0.5
_Sighting = tuple[int, datetime | None]
"""The server process of a handler, and since when that waits for a client which waits for an answer."""
_LEAST_LOOK_INTERVAL = 1.0
"""Seconds between looks for the server sessions of handlers."""
_LAST_BEAT = 5.0
"""Seconds that a beat which is under way gets to end when the worker stops."""


class Keeper(threading.Thread):
    """Holds the leases of the runs that it is given.

    Args:
        control: short transactions on a connection that only the keeper uses.
        shortest: the shortest visibility timeout in seconds among the tasks.
        begin_within: seconds in which the server must answer to the begin of a handler's transaction.
        emit: takes events.
        abandon: told of a run that did not end when asked to.
        fatal: told of an error that no later beat will cure; the worker must not go on without a keeper.
    """

    def __init__(
        self,
        control: Control,
        shortest: float,
        begin_within: float,
        emit: Callable[[Event], None],
        abandon: Callable[[Run], None],
        fatal: Callable[[Exception], None],
    ) -> None:
        super().__init__(name="sa-jobqueue-keeper", daemon=True)
        self._control, self._emit, self._abandon, self._fatal = control, emit, abandon, fatal
        self._begin_within = begin_within
        self._tick = min(shortest / 6, _LONGEST_TICK)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._held: set[Run] = set()
        self._doomed: dict[Run, float] = {}
        self._failing = False
        self._look_interval = max(shortest / 3, _LEAST_LOOK_INTERVAL)
        self._look_at = 0.0
        self._seen: dict[Run, _Sighting] = {}

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
            with passing_over_outages():
                run.with_backend(lambda pid: self._control.end_backend(pid, terminate=False))

    def _keep(self, held: list[Run], now: float) -> None:
        """End what must end first: that must not wait for a database which does not answer."""
        for run in held:
            if run.overdue(now):
                self.end(run, Condemned.TIME_LIMIT)
            elif run.outlives_lease(now, 2 * self._tick):
                self.end(run, Condemned.SNAPSHOT)
            elif run.opens_too_long(now, self._begin_within):
                run.cut(socket.SHUT_RDWR)
        for run in [run for run, patience in self._doomed.items() if now > patience]:
            self._give_up_on(run)
        due = [run for run in held if not run.keeps_snapshot]
        self._beat([run for run in due if now - run.beaten >= run.task.visibility_timeout / 3 - self._tick], now)
        self._look_for_sessions(held, now)

    def _give_up_on(self, run: Run) -> None:
        """Terminate first: where the handler's connection is half open, its session does not hear of a cut."""
        del self._doomed[run]
        if not run.finished:
            with passing_over_outages():
                run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
            run.cut(socket.SHUT_RDWR)
            self._abandon(run)

    def _beat(self, due: list[Run], now: float) -> None:
        if not due:
            return
        lost = set(self._control.heartbeat([(run.job, run.task.visibility_timeout) for run in due]))
        for run in due:
            run.beaten = now
            if run.job in lost and not run.settling:
                self.end(run, Condemned.LEASE_LOST)

    def _look_for_sessions(self, held: list[Run], now: float) -> None:
        """Find handlers that wait for an answer which cannot come, because their connection is half open."""
        if now < self._look_at:
            return
        self._look_at = now + self._look_interval
        present = {run: pid for run in held if (pid := run.backend) is not None}
        known = {run: pid for run, pid in present.items() if run in self._seen and self._seen[run][0] == pid}
        sessions = self._control.sessions(known.values()) if known else {}
        before, self._seen = self._seen, {run: (pid, None) for run, pid in present.items()}
        for run, pid in known.items():
            if pid not in sessions:
                run.cut(socket.SHUT_RD, pid)  # one that waits for nothing can still read what the server said at last
            elif (since := sessions[pid]) is not None and run.awaits_answer():
                self._wait_for_each_other(run, (pid, since), before[run])

    def _wait_for_each_other(self, run: Run, now: _Sighting, before: _Sighting) -> None:
        """Client and server both wait. If nothing has come to the server since the last look, nothing will."""
        self._seen[run] = now
        if now == before:
            run.cut(socket.SHUT_RDWR, now[0])

    def _report(self, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self._emit(HeartbeatFailed(self._control.worker, error))
