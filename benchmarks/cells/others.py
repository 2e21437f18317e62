"""The peers' cells: the same work as ours, on the same server, in the same rounds.

A peer's drain begins with the start of its first handler after the warm-up, as ours does, and ends when the harness,
which asks every 20 ms, finds nothing pending in the peer's tables.
"""

from __future__ import annotations

import random
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import make_url, text

from benchmarks.cells.idle import GAP, percentiles
from benchmarks.children import ChildFailed
from benchmarks.laps import Lap
from benchmarks.meter import metering
from benchmarks.peers.environments import PeerSpec
from benchmarks.peers.talk import Talk, talking
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import count

__all__ = ["Peer", "cells"]

_LOOK: Final = 0.020
_PATIENCE: Final = 300.0
_WARM: Final = 2
_BULK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Peer:
    """An installed peer; ``folder`` is for what its processes write to the standard error."""

    spec: PeerSpec
    python: Path
    folder: Path

    def talk(self, arena: Arena, command: str, *words: object) -> AbstractContextManager[Talk]:
        """Start its script on the database."""
        url = make_url(arena.url).set(drivername="postgresql").render_as_string(hide_password=False)
        return talking(self.python, self.spec.name, self.folder, command, url, *map(str, words))

    def ask(self, arena: Arena, command: str, *words: object) -> dict[str, Any]:
        """Run its script for one answer."""
        with self.talk(arena, command, *words) as script:
            return script.hear()

    def clear(self, arena: Arena) -> None:
        """Empty our tables and the peer's."""
        arena.clear()
        arena.admin.execute(text(f"TRUNCATE {', '.join(self.spec.tables)} RESTART IDENTITY CASCADE"))

    def settle_down(self, arena: Arena) -> None:
        """As :meth:`Arena.settle_down`, with the peer's tables."""
        arena.admin.execute(text(f"VACUUM (ANALYZE) {', '.join(self.spec.tables)}"))
        arena.settle_down()

    def pending(self, arena: Arena) -> bool:
        """True while a job is not acknowledged."""
        return bool(arena.admin.scalar(text(f"SELECT EXISTS ({self.spec.pending})")))


def cells(peer: Peer, *, drain_jobs: int, enqueues: int, pickups: int) -> list[Cell]:
    """All that is measured of one peer; a faster one gets more jobs to drain, so that its runs are as long."""
    name, drained = peer.spec.name, int(drain_jobs * peer.spec.pace)
    return [
        Cell(f"{name}.insert", drained, partial(_drain, peer, "insert")),
        Cell(f"{name}.noop", drained, partial(_drain, peer, "noop")),
        Cell(f"{name}.enqueue", enqueues, partial(_produce, peer, "enqueue")),
        Cell(f"{name}.bulk_enqueue", 5 * max(enqueues, _BULK) // _BULK * _BULK, partial(_produce, peer, "bulk")),
        Cell(f"{name}.pickup", pickups, partial(_pickup, peer)),
    ]


def _drain(peer: Peer, work: str, arena: Arena, jobs: int) -> Sample:
    peer.clear(arena)
    peer.ask(arena, "fill", jobs)
    arena.wait_for_quiet()
    peer.settle_down(arena)
    with metering(arena, jobs) as cost, peer.talk(arena, "serve", work) as script:
        ended = _when_done(peer, arena, script)
        script.say()
        state = _last(script)
    lap = Lap(jobs - int(state["skipped"]), state["began"], ended, state["cpu"])
    values = {"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us, **cost}
    return Sample(values, _faults(arena, jobs if work == "insert" else 0, int(state["started"]), jobs))


def _when_done(peer: Peer, arena: Arena, script: Talk) -> float:
    deadline = time.monotonic() + _PATIENCE
    while peer.pending(arena):
        if time.monotonic() > deadline or not script.running():
            msg = f"{peer.spec.name} did not empty its queue"
            raise ChildFailed(msg)
        time.sleep(_LOOK)
    return time.monotonic()


def _last(script: Talk) -> dict[str, Any]:
    while "began" not in (said := script.hear()):
        pass
    return said


def _faults(arena: Arena, effects: int, started: int, jobs: int) -> tuple[str, ...]:
    found = count(arena)
    wanted = {"effects": (found.effects, effects), "distinct_effects": (found.distinct_effects, effects)}
    wanted |= {"handlers started": (started, jobs)}
    return tuple(f"{name}: {is_}, expected {ought}" for name, (is_, ought) in wanted.items() if is_ != ought)


def _produce(peer: Peer, command: str, arena: Arena, jobs: int) -> Sample:
    peer.clear(arena)
    peer.settle_down(arena)
    with metering(arena, jobs) as cost:
        lap = Lap(**peer.ask(arena, command, jobs))
    stored = arena.admin.scalar(text(f"SELECT count(*) FROM ({peer.spec.pending}) AS pending"))  # noqa: S608 (ours)
    faults = () if stored == jobs else (f"jobs: {stored}, expected {jobs}",)
    return Sample({"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us, **cost}, faults)


def _pickup(peer: Peer, arena: Arena, jobs: int) -> Sample:
    peer.clear(arena)
    peer.settle_down(arena)
    with peer.talk(arena, "serve", "insert") as worker, peer.talk(arena, "ping") as producer:
        worker.hear()
        producer.hear()
        time.sleep(1)
        waits = [_one_pickup(worker, producer, n) for n in range(1, jobs + _WARM + 1)]
        _when_done(peer, arena, worker)
    arena.wait_for_quiet()
    return Sample(percentiles(waits[_WARM:]), _faults(arena, len(waits), len(waits), len(waits)))


def _one_pickup(worker: Talk, producer: Talk, n: int) -> float:
    time.sleep(random.uniform(*GAP))  # noqa: S311 (no secret)
    producer.say(str(n))
    called: float = producer.hear()["called"]
    began: float = worker.hear()["started"]
    return (began - called) * 1_000
