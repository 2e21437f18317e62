"""A job, and then the bare transaction of its handler, in turns on each thread of one worker.

Whole cells run seconds apart, and a shared machine changes its speed in between by more than what is to be told. Here
both share every moment. So both also share a server that is busy with jobs, which the bare cells have for themselves:
this ratio tells what a job adds to its handler's time, not what a worker adds to the load of the machine.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy.orm import Session

from benchmarks.cells.workers import HANDLERS, ON_CONNECTION, Plan, application_engine, worker_of
from benchmarks.children import answer, child
from benchmarks.laps import Stopwatch
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults
from sa_jobqueue.observe import Event, RunEnded

__all__ = ["cells", "paired"]


def cells(jobs: int, concurrency: int) -> list[Cell]:
    """Jobs with an ORM handler, and with a Core handler."""
    plans = {"orm": Plan("orm", concurrency), "core": Plan("core", concurrency, ON_CONNECTION)}
    return [Cell(f"{name}_paired", jobs, partial(paired, plan)) for name, plan in plans.items()]


def paired(plan: Plan, arena: Arena, jobs: int) -> Sample:
    """``of_bare`` is the time of the bare transactions by that of the jobs; both in microseconds beside it."""
    arena.clear()
    arena.seed(jobs)
    arena.settle_down()
    with child(_work, arena.url, plan) as pipe:
        job, bare = answer(pipe)
    values = {"of_bare": bare / job, "job_us": job * 1e6, "bare_us": bare * 1e6}
    return Sample(values, faults(arena, Counted(2 * jobs, 2 * jobs, jobs)))


def _work(pipe: Connection, url: str, plan: Plan) -> None:
    watch = Stopwatch()
    handler = HANDLERS[plan.handler](watch)
    pairs = _Pairs(url, plan, handler)
    worker_of(url, plan, handler, watch, hear=pairs.hear).run(until_empty=True)
    pipe.send(pairs.means())


class _Pairs:
    """Times what its subscriber hears: a job from the end of the last bare transaction on its thread to its own end."""

    def __init__(self, url: str, plan: Plan, handler: Any) -> None:
        engine = application_engine(url, plan.concurrency)
        self._open = engine.connect if plan.task == ON_CONNECTION else partial(Session, engine)
        self._handler, self._warm = handler, plan.warm
        self._own = threading.local()
        self._times: list[tuple[float, float]] = []

    def hear(self, event: Event) -> None:
        """Do the bare transaction of a job that has ended; the number of its effect is the negative one."""
        if not isinstance(event, RunEnded):
            return
        ended = time.perf_counter()
        with self._open() as given:
            self._handler(given, -event.job.args["n"])
            given.commit()
        now = time.perf_counter()
        if hasattr(self._own, "since"):
            self._times.append((ended - self._own.since, now - ended))
        self._own.since = now

    def means(self) -> tuple[float, float]:
        """Seconds of a job, and of its bare transaction, without the warm-up."""
        job, bare = (sum(each) / len(each) for each in zip(*self._times[self._warm :], strict=True))
        return job, bare
