"""Somebody holds an old snapshot while jobs pass: no dead row can be removed, and claims must not walk over them.

Many jobs pass first; then the others are timed, one commit each, while the snapshot is still held: in one queue,
through one worker. Where this release has no batch tasks, SQL passes the first ones, before the worker starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from sqlalchemy import text

from benchmarks.cells.limits import CLAIM, EFFECTS, SETTLE_MANY, connect
from benchmarks.cells.workers import HANDLERS, Plan, knows, worker_of
from benchmarks.children import in_children
from benchmarks.laps import Lap, Stopwatch
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults

__all__ = ["cells", "drain_behind"]

_PASSING: Final = "pass"
_BATCH: Final = 100


def cells(jobs: int, passing: int, concurrency: int) -> list[Cell]:
    """``passing`` jobs go by before ``jobs`` are timed; once with a snapshot held all the while, once without."""
    plan = Plan("orm", concurrency)
    return [
        Cell("held_snapshot", jobs, partial(drain_behind, plan, passing, held=True)),
        Cell("no_snapshot", jobs, partial(drain_behind, plan, passing, held=False)),
    ]


def drain_behind(plan: Plan, passing: int, arena: Arena, jobs: int, *, held: bool) -> Sample:
    """One run; ``passing`` may be 0."""
    arena.clear()
    arena.seed(passing, task=_PASSING)
    arena.seed(jobs, first=passing + 1)
    arena.settle_down()
    with _snapshot(arena, held=held):
        if passing and not knows("batch"):
            _pass_by_sql(arena.url, passing)
        passed, lap = in_children(_work, (arena.url, plan))[0]
    values = {"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us}
    if passed is not None:
        values["passing_jobs_per_s"] = passed.jobs_per_s
    return Sample(values, faults(arena, Counted.once_each(passing + jobs)))


@contextmanager
def _snapshot(arena: Arena, *, held: bool) -> Iterator[None]:
    """A transaction of an analyst who went to lunch."""
    with arena.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        if held:
            connection.execute(text("SELECT count(*) FROM bench_effect"))
        yield
        connection.rollback()


def _pass_by_sql(url: str, passing: int) -> None:
    """Claim and settle by the hundred, as a worker would."""
    with connect(url) as link:
        for _ in range(passing // _BATCH):
            jobs = link.execute(CLAIM).fetchall()
            with link.transaction():
                link.execute(EFFECTS, ([args["n"] for _, _, args in jobs],))
                link.execute(SETTLE_MANY, ([each[0] for each in jobs], [each[1] for each in jobs], len(jobs)))


def _work(url: str, plan: Plan) -> tuple[Lap | None, Lap]:
    """The laps of the jobs that pass, if they pass through the worker, and of the timed ones."""
    watch, passing = Stopwatch(plan.warm), Stopwatch(plan.warm)
    worker = worker_of(url, plan, HANDLERS[plan.handler](watch), watch, also=_passing_task(passing))
    worker.run(until_empty=True)
    return (passing.lap() if passing.seen else None), watch.lap()


def _passing_task(watch: Stopwatch) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The other task: its jobs end before the timed ones begin, so the last of its starts ends its lap."""
    if not knows("batch"):
        return {}
    handle = HANDLERS["batch"](watch)

    def record(session: Any, jobs: Any) -> None:
        handle(session, jobs)
        watch.ended()

    return {_PASSING: (record, {"batch": _BATCH})}
