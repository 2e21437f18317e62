"""How fast jobs are claimed and done while many other rows are there; the timed jobs come first by priority."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.ballast import NUMBERED_FROM
from benchmarks.cells.workers import HANDLERS, Plan, application_engine, worker_of
from benchmarks.children import in_children
from benchmarks.laps import Lap, Stopwatch
from benchmarks.rounds import Sample
from benchmarks.server import Arena
from sa_jobqueue import JobSession
from sa_jobqueue.observe import Event, RunEnded

__all__ = ["Rows", "claim_rate", "faults", "last_number", "rows", "settle_down", "worker_rate"]

_FIRST: Final = -1
_COUNT: Final = text("""
    SELECT (SELECT count(*) FROM bench_effect) AS effects,
           (SELECT count(DISTINCT n) FROM bench_effect) AS distinct_effects,
           (SELECT count(*) FROM jobqueue_dedup_key WHERE job_id IS NOT NULL) AS dedup_keys,
           (SELECT count(*) FROM jobqueue_job) AS jobs
""")
_LAST: Final = text("SELECT coalesce(max(n), 0) FROM bench_effect WHERE n < :ballast")


@dataclass(frozen=True, slots=True)
class Rows:
    """What is there."""

    effects: int
    distinct_effects: int
    dedup_keys: int
    jobs: int


def worker_rate(plan: Plan, arena: Arena, jobs: int, queues: tuple[str, ...] = ("default",)) -> Sample:
    """A worker that does ``jobs`` of the jobs that are there, those of ours first, and stops."""
    _put_first(arena, jobs, queues)
    before = rows(arena)
    lap: Lap = in_children(_take, (arena.url, plan, jobs, queues))[0]
    return Sample({"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us}, faults(before, rows(arena), jobs))


def claim_rate(arena: Arena, jobs: int) -> Sample:
    """Public claims, one job and one commit each; afterwards the jobs are taken away."""
    _put_first(arena, jobs, ("default",))
    lap: Lap = in_children(_claim, (arena.url, jobs))[0]
    claimed = arena.admin.execute(text("DELETE FROM jobqueue_job WHERE status = 'claimed'")).rowcount
    faults = () if claimed == jobs else (f"claimed jobs: {claimed}, expected {jobs}",)
    return Sample({"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us}, faults)


def _put_first(arena: Arena, jobs: int, queues: tuple[str, ...]) -> None:
    """Jobs ahead of everything else, spread over the queues, numbered behind those of the runs before."""
    last = last_number(arena)
    for place, queue in enumerate(queues):
        share = len(range(place, jobs, len(queues)))
        arena.seed(share, queue=queue, first=last + 1, priority=_FIRST)
        last += share
    settle_down(arena)


def last_number(arena: Arena) -> int:
    """The number of the last job that was done and is no ballast, or 0."""
    found: int = arena.admin.scalar(_LAST, {"ballast": NUMBERED_FROM})
    return found


def settle_down(arena: Arena) -> None:
    """As :meth:`Arena.settle_down`, for the jobs alone: the other tables may be large."""
    arena.admin.execute(text("VACUUM (ANALYZE) jobqueue_job"))
    arena.admin.execute(text("CHECKPOINT"))


def _take(url: str, plan: Plan, jobs: int, queues: tuple[str, ...]) -> Lap:
    watch, ended = Stopwatch(plan.warm), itertools.count(1)

    def hear(event: Event) -> None:
        if type(event) is RunEnded and next(ended) == jobs:
            worker.stop()

    worker = worker_of(url, plan, HANDLERS[plan.handler](watch), watch, hear=hear, queues=queues)
    worker.run()
    return watch.lap()


def _claim(url: str, jobs: int) -> Lap:
    watch, engine = Stopwatch(), application_engine(url, 1)
    for _ in range(jobs):
        watch.started()
        with Session(engine) as session:
            JobSession(session).claim()
            session.commit()
    watch.ended()
    return watch.lap()


def rows(arena: Arena) -> Rows:
    """What is there when everybody has gone."""
    arena.wait_for_quiet()
    return Rows(**arena.admin.execute(_COUNT).mappings().one())


def faults(before: Rows, after: Rows, jobs: int) -> tuple[str, ...]:
    """Whatever was taken has one effect and one dedup row, and nothing else is missing."""
    done = before.jobs - after.jobs
    made = {
        "effects": after.effects - before.effects,
        "distinct effects": after.distinct_effects - before.distinct_effects,
        "dedup keys": after.dedup_keys - before.dedup_keys,
    }
    wrong = [f"{name}: {count}, and {done} jobs are gone" for name, count in made.items() if count != done]
    return (*wrong, *([f"jobs done: {done}, expected at least {jobs}"] if done < jobs else []))
