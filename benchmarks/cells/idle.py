"""A worker that waits: how soon it begins a job that comes, and what its waiting costs."""

from __future__ import annotations

import random
import statistics
import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from sqlalchemy.orm import Session

from benchmarks.business import TASK, Effect
from benchmarks.cells.workers import Plan, worker_of
from benchmarks.children import answer, child
from benchmarks.laps import Stopwatch
from benchmarks.meter import metering
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults
from sa_jobqueue import JobSession
from sa_jobqueue.observe import Event, WorkerStarted

__all__ = ["GAP", "cells", "percentiles"]

_WARM: Final = 2
GAP: Final = (0.020, 0.060)
_LEAST: Final = 4
"""Jobs of a run at least, however long each takes; a worker that only polls takes its poll interval for each."""


def cells(jobs: int, seconds: float, concurrency: int) -> list[Cell]:
    """``jobs`` pickups within about ``seconds``, and as many seconds of waiting for nothing."""
    plan = Plan("orm", concurrency)
    return [
        Cell("pickup", jobs, partial(_pickup, plan, seconds)),
        Cell("idle", 0, partial(_idle, plan, seconds), rounds=1),
    ]


def _pickup(plan: Plan, seconds: float, arena: Arena, jobs: int) -> Sample:
    """Milliseconds from the call of enqueue to the start of the handler, one job at a time."""
    arena.clear()
    arena.settle_down()
    waits: list[float] = []
    with child(_serve, arena.url, plan) as pipe:
        answer(pipe)
        until = time.monotonic() + seconds
        while len(waits) < jobs + _WARM and (time.monotonic() < until or len(waits) < _LEAST + _WARM):
            waits.append(_one_pickup(arena, pipe, len(waits) + 1))
        pipe.send("stop")
        answer(pipe)
    return Sample(percentiles(waits[_WARM:]), faults(arena, Counted.once_each(len(waits))))


def _one_pickup(arena: Arena, pipe: Connection, n: int) -> float:
    time.sleep(random.uniform(*GAP))  # noqa: S311 (no secret)
    with Session(arena.engine) as session:
        called = time.monotonic()
        JobSession(session).enqueue(TASK, {"n": n}, dedup_key=f"{TASK}:{n}")
        session.commit()
    began: float = answer(pipe, 60)
    return (began - called) * 1_000


def percentiles(waits: list[float]) -> dict[str, float]:
    """The cuts of a run in milliseconds."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p90_ms": cuts[89], "p99_ms": cuts[98], "pickups": len(waits)}


def _idle(plan: Plan, seconds: float, arena: Arena, _jobs: int) -> Sample:
    """CPU of a worker without jobs as a fraction of one core, and its transactions a second."""
    arena.clear()
    arena.settle_down()
    with metering(arena, 1) as cost, child(_serve, arena.url, plan) as pipe:
        answer(pipe)
        time.sleep(seconds)
        pipe.send("stop")
        wall, cpu = answer(pipe)
    return Sample({"cpu": cpu / wall, "transactions": cost["commits"] / wall}, faults(arena, Counted(0, 0, 0)))


def _serve(pipe: Connection, url: str, plan: Plan) -> None:
    """A worker that tells when each handler begins, until it is told to stop; then its seconds of wall and of CPU."""
    started = threading.Event()

    def record(session: Session, n: int) -> None:
        pipe.send(time.monotonic())
        session.add(Effect(n=n))

    def hear(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            started.set()

    options: dict[str, Any] = {**plan.worker, "subscribers": (hear,)}
    worker = worker_of(url, Plan("orm", plan.concurrency, plan.task, options), record, Stopwatch())
    serving = threading.Thread(target=worker.run)
    serving.start()
    started.wait(60)
    wall, cpu = time.monotonic(), time.process_time()
    pipe.send("serving")
    pipe.recv()
    used = time.monotonic() - wall, time.process_time() - cpu
    worker.stop()
    serving.join()
    pipe.send(used)
