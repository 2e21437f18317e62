"""A worker that waits: how soon it begins a job that comes, and what its waiting costs."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from sqlalchemy import Connection as SQLConnection
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from benchmarks.ballast import NUMBERED_FROM
from benchmarks.business import TASK
from benchmarks.cells.workers import HANDLERS, INSERT, Plan, worker_of
from benchmarks.children import answer, child
from benchmarks.laps import Stopwatch
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults
from sa_jobqueue import JobSession
from sa_jobqueue.observe import Event, WorkerStarted

__all__ = ["GAP", "WARM", "cells", "idle", "percentiles", "pick_up", "serve"]

WARM: Final = 2
GAP: Final = (0.020, 0.060)
_LEAST: Final = 4
"""Jobs of a run at least, however long each takes; a worker that only polls takes its poll interval for each."""
_POLL: Final = 1.0
_SETTLED: Final = 2.5
_INTERVALS: Final = 10
"""Poll intervals from the start of an idle worker to where it is measured, and over which: both ends between polls."""


def cells(jobs: int, seconds: float, concurrency: int) -> list[Cell]:
    """``jobs`` pickups within about ``seconds``, and ten poll intervals of waiting for nothing."""
    plan = Plan("orm", concurrency)
    return [
        Cell("pickup", jobs, partial(_pickup, plan, seconds)),
        Cell("idle", 0, partial(idle, plan, _POLL), rounds=1),
    ]


def _pickup(plan: Plan, seconds: float, arena: Arena, jobs: int) -> Sample:
    """Milliseconds from the call of enqueue to the start of the handler, one job at a time."""
    arena.clear()
    arena.settle_down()
    with child(serve, arena.url, plan) as pipe:
        waits = pick_up(arena, pipe, jobs, seconds)
    return Sample(percentiles(waits[WARM:]), faults(arena, Counted.once_each(len(waits))))


def pick_up(
    arena: Arena, pipe: Connection, jobs: int, seconds: float, *, queues: Sequence[str] = ("default",), first: int = 1
) -> list[float]:
    """The waits of jobs numbered from ``first`` on, in each queue in turn, the warm-up first; the worker is stopped."""
    waits: list[float] = []
    turns = itertools.cycle(queues)
    answer(pipe)
    until = time.monotonic() + seconds
    while len(waits) < jobs + WARM and (time.monotonic() < until or len(waits) < _LEAST + WARM):
        waits.append(_one_pickup(arena, pipe, first + len(waits), next(turns)))
    pipe.send("stop")
    answer(pipe)
    return waits


def _one_pickup(arena: Arena, pipe: Connection, n: int, queue: str) -> float:
    time.sleep(random.uniform(*GAP))  # noqa: S311 (no secret)
    with Session(arena.engine) as session:
        called = time.monotonic()
        JobSession(session).enqueue(TASK, {"n": n}, queue=queue, dedup_key=f"{TASK}:{n}")
        session.commit()
    began: float = answer(pipe, 60)
    return (began - called) * 1_000


def percentiles(waits: list[float]) -> dict[str, float]:
    """The cuts of a run in milliseconds."""
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p90_ms": cuts[89], "p99_ms": cuts[98], "pickups": len(waits)}


def idle(plan: Plan, poll: float, arena: Arena, _jobs: int) -> Sample:
    """What a worker without jobs costs, over ten poll intervals of ``poll`` seconds that begin after its start-up.

    ``cpu`` is a fraction of one core. ``transactions`` is the statements that it sends in one poll interval, counted by
    a listener on its engines; each commits by itself. Only what its listener says to itself is not among them: one
    NOTIFY every ten seconds, to prove that notifications arrive. The claims that follow upon that are.
    """
    arena.clear()
    arena.settle_down()
    with child(_wait_for_nothing, arena.url, plan, poll) as pipe:
        cpu, statements = answer(pipe)
    values = {"cpu": cpu / (_INTERVALS * poll), "transactions": statements / _INTERVALS}
    return Sample(values, faults(arena, Counted(0, 0, 0)))


def _wait_for_nothing(pipe: Connection, url: str, plan: Plan, poll: float) -> None:
    """Seconds of CPU, and statements, of a worker between two moments."""
    sent: list[str] = []
    event.listen(Engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    options = replace(plan, worker={**plan.worker, "poll_interval": poll, "sweep_interval": poll})
    with _running(url, options, HANDLERS[plan.handler](Stopwatch())):
        time.sleep(_SETTLED * poll)
        cpu, before = time.process_time(), len(sent)
        time.sleep(_INTERVALS * poll)
        used = time.process_time() - cpu, len(sent) - before
    pipe.send(used)


def serve(pipe: Connection, url: str, plan: Plan, queues: Sequence[str] | None = None) -> None:
    """A worker that tells when the handler of each job begins that is no ballast, until it is told to stop."""

    def record(given: Session | SQLConnection, n: int) -> None:
        if n < NUMBERED_FROM:
            pipe.send(time.monotonic())
        given.execute(INSERT, {"n": n})

    with _running(url, plan, record, queues):
        pipe.send("serving")
        pipe.recv()
    pipe.send("stopped")


@contextmanager
def _running(url: str, plan: Plan, handler: Callable[..., Any], queues: Sequence[str] | None = None) -> Iterator[None]:
    """A worker that has started, and is stopped at the end of the block."""
    started = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            started.set()

    worker = worker_of(url, plan, handler, Stopwatch(), hear=hear, queues=queues)
    serving = threading.Thread(target=worker.run)
    serving.start()
    if not started.wait(60):
        msg = "the worker did not start"
        raise RuntimeError(msg)
    yield
    worker.stop()
    serving.join()
