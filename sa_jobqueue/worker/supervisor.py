"""Several worker processes that are started, watched and replaced by one that claims nothing itself."""

from __future__ import annotations

import logging
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from selectors import EVENT_READ, DefaultSelector
from socket import socket, socketpair
from typing import TYPE_CHECKING, Any, Literal

from sa_jobqueue.errors import WorkerMisconfigured
from sa_jobqueue.observe import Event, ProcessEnded, ProcessStarted, SupervisorGaveUp, SupervisorStopping, log_event
from sa_jobqueue.worker.child import Make, live
from sa_jobqueue.worker.leash import Leash, signals_held_back
from sa_jobqueue.worker.roster import Place, Roster
from sa_jobqueue.worker.setup import default_name
from sa_jobqueue.worker.signals import stopping_on_signals

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

__all__ = ["Supervisor"]

logger = logging.getLogger("sa_jobqueue")

_AT_ONCE = 2
_LAST_PATIENCE = 10.0
"""Seconds that a process gets to end after it was told to stop at once."""
_LOOK = 0.5
"""Seconds between looks for a death that the leash did not tell, because a grandchild holds its other end."""


class Supervisor:
    """Starts worker processes, replaces those that die, and stops them when it is stopped.

    A process that dies takes only its own jobs with it: they come back when their leases run out, and a job that kills
    its process each time is a dead letter after its last attempt. A place is filled again after a pause that grows with
    each quick death. If no process has ever served, the third death, or the first one by a misuse (exit code 2), ends
    the whole with that exit code.

    Args:
        make: makes the worker, or a context manager around it, in the child. With ``spawn`` and ``forkserver`` it must
            be importable, as of a module.
        processes: how many.
        method: how a process begins. ``spawn`` is a fresh interpreter, which inherits no pool, thread or lock.
            ``fork`` starts fast, and in each child the pools of the worker are emptied without closing what belongs to
            the parent; engines that the worker does not know need ``dispose(close=False)`` in ``make``.
        until_empty: end when the queues are empty; as of :meth:`Worker.run`.
        name: of the supervisor, in its events.
        subscribers: called with the supervisor's events; those of the workers go to the workers' own.

    Raises:
        WorkerMisconfigured: without a process.
    """

    def __init__(
        self,
        make: Make,
        *,
        processes: int,
        method: Literal["spawn", "fork", "forkserver"] = "spawn",
        until_empty: bool = False,
        name: str | None = None,
        subscribers: Sequence[Callable[[Event], None]] = (log_event,),
    ) -> None:
        if processes < 1:
            msg = f"processes must be at least 1; got {processes}"
            raise WorkerMisconfigured(msg)
        self.name = name or f"supervisor {default_name()}"
        self._make, self._until_empty, self._subscribers = make, until_empty, tuple(subscribers)
        self._context: Any = multiprocessing.get_context(method)
        self._forks = method == "fork"
        self._roster = Roster(processes, until_empty)
        self._children: dict[Place, tuple[BaseProcess, Leash]] = {}
        self._started = self._stops = 0
        self._kill_at = math.inf
        self._alarm, self._bell = socketpair()
        self._selector = DefaultSelector()

    def run(self) -> int:
        """Work until stopped, or until the queues are empty; call it once.

        In the main thread SIGTERM and SIGINT stop gracefully, a second one at once; a process that does not end within
        ten seconds of that is killed.

        Returns:
            The exit code: 0; 1 if a process had to be killed; else that of a process that could not begin to serve,
            128 + the number if a signal ended it.
        """
        self._selector.register(self._alarm, EVENT_READ)
        try:
            with stopping_on_signals(self.stop):
                while not self._roster.done():
                    self._step()
        finally:
            self._close()
        return self._roster.code

    def stop(self) -> None:
        """Stop gracefully, from any thread or signal handler; called again: at once."""
        with suppress(OSError):  # it has ended already
            self._bell.send(b"s")

    def _step(self) -> None:
        for place in self._roster.to_fill(time.monotonic()):
            self._fill(place)
        pause = self._roster.wait(time.monotonic())
        ready = [key.fileobj for key, _ in self._selector.select(_LOOK if pause is None else min(pause, _LOOK))]
        if self._alarm in ready:
            for _ in self._alarm.recv(64):
                self._on_stop()
        for place, (process, leash) in list(self._children.items()):
            if leash in ready:
                self._listen(place, process, leash)
            if process.exitcode is not None:
                self._bury(place, process, leash)
        self._kill_who_will_not_stop()

    def _fill(self, place: Place) -> None:
        """Start a process, which is handed the far end of a new leash."""
        self._started += 1
        leash = Leash()
        arguments = (self._make, leash.far_end, self._started, self._until_empty, self._inherited(leash))
        process = self._context.Process(target=live, args=arguments, name=f"sa-jobqueue-{self._started}")
        if not self._forks:
            resource_tracker.ensure_running()  # it would let the signals loose again
        with signals_held_back():
            process.start()
        leash.let_go()
        self._children[place] = process, leash
        self._selector.register(leash, EVENT_READ)
        self._roster.filled(place)
        self._emit(ProcessStarted(self.name, process.pid))

    def _inherited(self, leash: Leash) -> list[socket] | None:
        if not self._forks:
            return None
        return [self._alarm, self._bell, leash.end, *(each.end for _, each in self._children.values())]

    def _listen(self, place: Place, process: BaseProcess, leash: Leash) -> None:
        leash.listen()
        if leash.serving:
            self._roster.serving(place, time.monotonic())
        if leash.slack:
            self._selector.unregister(leash)
            process.join(_LOOK)  # a process lets go of its sockets a moment before it is seen to have ended

    def _bury(self, place: Place, process: BaseProcess, leash: Leash) -> None:
        pid, code = process.pid or 0, process.exitcode or 0
        if not leash.slack:
            self._selector.unregister(leash)
        leash.close()
        process.close()
        del self._children[place]
        pause = self._roster.ended(place, code, time.monotonic())
        self._emit(ProcessEnded(self.name, pid, code, pause))
        if self._roster.gave_up and not self._stops:
            self._emit(SupervisorGaveUp(self.name, self._roster.code))
            self._on_stop()

    def _on_stop(self) -> None:
        self._stops += 1
        self._roster.stop()
        self._emit(SupervisorStopping(self.name, len(self._children)))
        if self._stops >= _AT_ONCE:
            self._kill_at = 0.0 if self._stops > _AT_ONCE else time.monotonic() + _LAST_PATIENCE
        for _, leash in self._children.values():
            leash.pull()

    def _kill_who_will_not_stop(self) -> None:
        if time.monotonic() < self._kill_at:
            return
        self._kill_at = math.inf
        for process, _ in self._children.values():
            self._roster.killed()
            process.kill()

    def _close(self) -> None:
        """Whoever is left stops when its leash is gone."""
        for _, leash in self._children.values():
            leash.close()
        self._selector.close()
        self._alarm.close()
        self._bell.close()

    def _emit(self, event: Event) -> None:
        """A subscriber that fails is reported and changes nothing."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                logger.exception("%s: a subscriber failed on %s", self.name, type(event).__name__)
