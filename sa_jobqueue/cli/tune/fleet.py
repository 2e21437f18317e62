"""Of the workers: how many slots the work takes, in how many processes, with how many connections.

Little's law (J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9 (3), 1961): the mean
number of runs at a time is the runs that end in a second, times the mean seconds of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import ENOUGH, Figures, Fleet, Observation, Recommendation, Server
from sa_jobqueue.cli.tune.queues import USED, busy_slots, slots_for, waits
from sa_jobqueue.cli.tune.rounding import at_least, many, percent

__all__ = ["fleet"]

_CONTROL: Final = 3
"""Connections of a worker beside those of its handlers: control, heartbeats, hints."""
_CONCURRENCY: Final = 8
"""The default, and the upper end of what is right for short handlers."""
_CROWDED: Final = 0.8
_POOL: Final = 15
"""Connections of SQLAlchemy's default pool, its overflow included."""


def fleet(seen: Observation) -> Iterator[Recommendation]:
    """Slots, processes and connections for the work that was seen; nothing if that was too little."""
    if sum(queue.runs for queue in seen.queues) < ENOUGH:
        return
    slots, given = slots_for(seen.queues, seen.counted), seen.fleet
    processes, concurrency = _shape(slots, given)
    figures = _figures(seen, slots)
    yield _of("concurrency", given.concurrency, concurrency, _slots_why(figures), figures)
    yield _of("processes", given.processes, processes, _processes_why(slots, given), figures)
    if concurrency > _POOL:
        yield _of("pool_size", None, concurrency, _POOL_WHY, figures)
    if seen.server is not None:
        yield _connections(seen.server, processes, concurrency)


def _shape(slots: int, given: Fleet) -> tuple[int, int]:
    """What there is, if it suffices; else so many processes of so many slots, no more processes than cores."""
    if given.processes and given.concurrency and given.processes * given.concurrency >= slots:
        return given.processes, given.concurrency
    processes = min(given.cores, math.ceil(slots / _CONCURRENCY))
    return processes, max(_CONCURRENCY, math.ceil(slots / processes))


def _figures(seen: Observation, slots: int) -> dict[str, float]:
    return {
        "slots": slots,
        "busy": busy_slots(seen.queues, seen.counted),
        "runs_per_second": sum(queue.runs for queue in seen.queues) / seen.counted,
        "ready": sum(queue.ready for queue in seen.queues),
        "oldest": max(queue.oldest for queue in seen.queues),
        "cores": seen.fleet.cores,
    }


def _slots_why(figures: dict[str, float]) -> str:
    rate, busy = figures["runs_per_second"], figures["busy"]
    return (
        f"Little's law: {rate:,.1f} runs a second of {duration(busy / rate)} keep {busy:,.1f} slots busy; "
        f"{waits(int(figures['ready']), figures['oldest'])}. {many(int(figures['slots']), 'slot')} at {percent(USED)} "
        f"would do both in the same time"
    )


def _processes_why(slots: int, given: Fleet) -> str:
    return (
        f"{many(slots, 'slot')}, {many(given.cores, 'core')}, of which a Python process uses one. Add a process, not "
        f"slots, if one is at 100 % of a core"
    )


_POOL_WHY: Final = (
    f"each handler takes a connection, and SQLAlchemy's default pool has {_POOL}; the worker command makes its own"
)


def _connections(server: Server, processes: int, concurrency: int) -> Recommendation:
    now, free = server.max_connections, server.max_connections - server.reserved
    need = processes * (concurrency + _CONTROL)
    why = (
        f"{many(processes, 'worker')} with {concurrency} + {_CONTROL} connections each, some more while many jobs "
        f"fail: {need} of {free}"
    )
    wanted = now if need <= _CROWDED * free else int(at_least(need / _CROWDED + server.reserved))
    if wanted != now:
        why += ". Or share them by a pooler in transaction mode"
    figures = {"connections": free, "needed": need}
    return Recommendation("server", "", "max_connections", f"{now}", f"{wanted}", why, figures)


def _of(setting: str, now: int | None, wanted: int, why: str, figures: Figures) -> Recommendation:
    return Recommendation("workers", "", setting, None if now is None else f"{now}", f"{wanted}", why, figures)
