"""Carries out the plan, and counts only what really hit."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sa_jobqueue.testing.chaos.fleet import Fleet
from sa_jobqueue.testing.chaos.ledger import Held, Ledger
from sa_jobqueue.testing.chaos.plan import Fault, FaultKind

__all__ = ["Injector", "Toll"]

_AIM: Final = 5.0
"""Seconds that a kill or a pause waits for a worker that holds a job."""
_REPLACED: Final = 15.0
"""Seconds that a kill waits for the fleet to be complete again: on a slow machine it would soon be dead otherwise."""
_GLANCE: Final = 0.02


@dataclass(slots=True)
class Toll:
    """What the faults hit.

    ``kills`` are of workers that held a job, ``pauses`` those that outlasted the lease of a held job; the others are
    idle. ``zombies`` are claims of stopped workers that others had taken over by the time that they went on.
    ``terminations`` are backends that the server did end, by role in ``terminated``.
    """

    kills: int = 0
    idle_kills: int = 0
    pauses: int = 0
    idle_pauses: int = 0
    zombies: int = 0
    restarts: int = 0
    missed_terminations: int = 0
    terminated: Counter[str] = field(default_factory=Counter)

    @property
    def terminations(self) -> int:
        """Backends that were ended, of all roles."""
        return self.terminated.total()


@dataclass(frozen=True, slots=True)
class _Pause:
    over_at: float
    name: str
    held: list[Held]


class Injector:
    """Does to the fleet what the plan says; one fault may be late because the one before took long.

    Args:
        fleet: whom it hits.
        ledger: tells whether it did.
        restart: restarts the server; None if that is not ours to do.
        say: told of each fault.
    """

    def __init__(
        self, fleet: Fleet, ledger: Ledger, restart: Callable[[], None] | None, say: Callable[[str], None]
    ) -> None:
        self.toll = Toll()
        self._fleet, self._ledger, self._restart, self._say = fleet, ledger, restart, say
        self._pauses: list[_Pause] = []
        self._clock = threading.Event()

    def carry_out(self, plan: tuple[Fault, ...], seconds: float) -> None:
        """Inject every fault at its time; returns after ``seconds``, or later, when all pauses are over."""
        began = time.monotonic()
        for fault in plan:
            self._wait_until(began + fault.at)
            self._fleet.check()
            self._inject(fault)
        self._wait_until(began + seconds)
        while self._pauses:
            self._wait_until(self._pauses[0].over_at)

    def _wait_until(self, moment: float) -> None:
        """Wait, and end the pauses whose time comes meanwhile."""
        while (now := time.monotonic()) < moment or self._due(now):
            for pause in self._due(now):
                self._pauses.remove(pause)
                self._resume(pause)
            nearest = min([moment, *(pause.over_at for pause in self._pauses)])
            self._clock.wait(max(nearest - time.monotonic(), 0))

    def _due(self, now: float) -> list[_Pause]:
        return [pause for pause in self._pauses if pause.over_at <= now]

    def _inject(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                self._kill(fault.target)
            case FaultKind.PAUSE:
                self._pause(fault)
            case FaultKind.TERMINATE:
                self._terminate(fault)
            case FaultKind.RESTART if self._restart is not None:
                self._say("the server is restarted at once")
                self._restart()
                self.toll.restarts += 1

    def _kill(self, target: int) -> None:
        """The victim's claims are counted after its death: they are what it took along."""
        self._wait_for(lambda: self._fleet.complete, _REPLACED)
        name = self._aim(target)
        self._fleet.kill(name)
        held = len(self._ledger.held_by(name))
        self.toll.kills += held > 0
        self.toll.idle_kills += held == 0
        self._say(f"{name} is killed with {held} jobs in its hands")

    def _pause(self, fault: Fault) -> None:
        name = self._aim(fault.target)
        self._fleet.pause(name)
        held = self._ledger.held_by(name)
        self._say(f"{name} is stopped for {fault.seconds:.1f} s with {len(held)} jobs in its hands")
        self._pauses.append(_Pause(time.monotonic() + fault.seconds, name, held))
        self._pauses.sort(key=lambda pause: pause.over_at)

    def _resume(self, pause: _Pause) -> None:
        """Look before it goes on: a lease that is over now ran out while its owner was stopped."""
        expired = self._ledger.expired(pause.held)
        self.toll.zombies += self._ledger.taken_over(pause.held)
        self._fleet.resume(pause.name)
        self.toll.pauses += expired > 0
        self.toll.idle_pauses += expired == 0
        self._say(f"{pause.name} goes on; {expired} of its {len(pause.held)} leases are over")

    def _terminate(self, fault: Fault) -> None:
        if self._ledger.terminate(fault.role, fault.target):
            self.toll.terminated[fault.role or ""] += 1
            self._say(f"a connection of the {fault.role} is terminated")
        else:
            self.toll.missed_terminations += 1

    def _aim(self, target: int) -> str:
        """Wait for workers that hold a job and are not stopped, and take one; if there are none in time, any worker."""
        self._wait_for(lambda: bool(self._at_work()), _AIM)
        names = self._at_work() or self._fleet.names
        return names[target % len(names)]

    def _at_work(self) -> list[str]:
        busy = self._ledger.holders() - {pause.name for pause in self._pauses}
        return [name for name in self._fleet.names if name in busy]

    def _wait_for(self, ready: Callable[[], bool], seconds: float) -> None:
        """Give up after so many seconds; pauses end on time meanwhile, and who could not start is replaced."""
        deadline = time.monotonic() + seconds
        while not ready() and time.monotonic() < deadline:
            self._fleet.check()
            self._wait_until(time.monotonic() + _GLANCE)
