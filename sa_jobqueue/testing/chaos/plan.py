"""The plan of faults: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["ROLES", "Fault", "FaultKind", "draw_plan"]


class FaultKind(StrEnum):
    """What can be done to a fleet."""

    KILL = "kill"
    """SIGKILL to a worker process; another one takes its place."""
    PAUSE = "pause"
    """SIGSTOP to a worker process until its leases are over, then SIGCONT."""
    TERMINATE = "terminate"
    """``pg_terminate_backend`` on one connection of a role."""
    RESTART = "restart"
    """An immediate restart of the server: every connection breaks, and what was not committed is gone."""


ROLES: Final = ("handler", "async", "keeper", "loop", "enqueuer")
"""Whose connection is terminated."""

_LEAST: Final = MappingProxyType({FaultKind.KILL: 2, FaultKind.PAUSE: 2, FaultKind.TERMINATE: 5, FaultKind.RESTART: 1})
"""So many even in the shortest run: one that hits nobody must not be the only one."""
_EVERY: Final = MappingProxyType(
    {FaultKind.KILL: 4.0, FaultKind.PAUSE: 4.5, FaultKind.TERMINATE: 1.5, FaultKind.RESTART: 15.0}
)
"""Mean seconds between two faults of a kind."""
_FIRST, _LAST = 0.05, 0.8
"""The part of the run in which faults begin."""
_TARGETS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Fault:
    """At ``at`` seconds of the run, the fault hits the ``target``-th of those that are there then (modulo their count).

    ``seconds`` is how long a pause lasts; ``role`` whose connection is terminated.
    """

    at: float
    kind: FaultKind
    target: int = 0
    seconds: float = 0.0
    role: str | None = None


def draw_plan(seed: int, seconds: float, *, lease: float, restarts: bool = True) -> tuple[Fault, ...]:
    """The faults of a run of ``seconds``, in the order of time: each kind at least once, whatever the seed.

    Args:
        seed: the same seed and arguments give the same plan.
        seconds: how long the load goes on.
        lease: the visibility timeout in seconds; a pause is longer than that.
        restarts: False if the server is not ours to restart.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    kinds = [kind for kind in FaultKind if restarts or kind is not FaultKind.RESTART]
    faults = [fault for kind in kinds for fault in _of_kind(chance, kind, seconds, lease)]
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _of_kind(chance: random.Random, kind: FaultKind, seconds: float, lease: float) -> Iterator[Fault]:
    """Spread over the run: one at a random time in each of equal parts."""
    count = max(_LEAST[kind], round(seconds / _EVERY[kind]))
    begin, part = seconds * _FIRST, seconds * (_LAST - _FIRST) / count
    for turn in range(count):
        yield Fault(
            at=round(begin + part * (turn + chance.random()), 3),
            kind=kind,
            target=chance.randrange(_TARGETS),
            seconds=round(lease * chance.uniform(2.0, 4.0), 3) if kind is FaultKind.PAUSE else 0.0,
            role=ROLES[turn % len(ROLES)] if kind is FaultKind.TERMINATE else None,
        )
