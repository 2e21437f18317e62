"""What runs in a producer's process: enqueues of ours, and the INSERT or COPY that bounds them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from sqlalchemy.orm import Session

from benchmarks.business import TASK, Effect
from benchmarks.cells.limits import connect
from benchmarks.cells.workers import application_engine
from benchmarks.laps import Lap, Stopwatch
from sa_jobqueue import JobSession, NewJob

__all__ = ["BULK", "bulk_enqueue", "copy_rows", "own_insert", "single_enqueue"]

BULK: Final = 1_000
"""Jobs of one bulk call."""

_COPY: Final = "COPY jobqueue_job (queue, task, args, dedup_key) FROM STDIN"
_WARM_CALLS: Final = 50


def single_enqueue(url: str, jobs: int) -> Lap:
    """One job, one commit, through a session of the caller's."""

    def enqueue(session: Session, n: int) -> None:
        JobSession(session).enqueue(TASK, {"n": n}, dedup_key=f"{TASK}:{n}")

    return _one_commit_each(url, jobs, enqueue)


def own_insert(url: str, jobs: int) -> Lap:
    """The caller's own ORM INSERT of one row, one commit each: what a single enqueue is measured against."""

    def insert(session: Session, n: int) -> None:
        session.add(Effect(n=n))

    return _one_commit_each(url, jobs, insert)


def bulk_enqueue(url: str, jobs: int) -> Lap:
    """``enqueue_many`` of a thousand a call, one commit each; making the ``NewJob`` objects is part of it."""
    engine = application_engine(url, 1)

    def enqueue(first: int) -> None:
        with Session(engine) as session:
            numbers = range(first, first + BULK)
            JobSession(session).enqueue_many(NewJob(TASK, {"n": n}, dedup_key=f"{TASK}:{n}") for n in numbers)
            session.commit()

    return _in_calls(jobs, enqueue)


def copy_rows(url: str, jobs: int) -> Lap:
    """COPY by psycopg of the same rows into the same table, a thousand a commit: the limit of a bulk enqueue."""
    with connect(url) as link:

        def copy(first: int) -> None:
            with link.cursor() as cursor, cursor.copy(_COPY) as rows:
                for n in range(first, first + BULK):
                    rows.write_row(("default", TASK, json.dumps({"n": n}), f"{TASK}:{n}"))

        return _in_calls(jobs, copy)


def _one_commit_each(url: str, jobs: int, act: Callable[[Session, int], None]) -> Lap:
    watch, engine = Stopwatch(_WARM_CALLS), application_engine(url, 1)
    for n in range(1, jobs + 1):
        watch.started()
        with Session(engine) as session:
            act(session, n)
            session.commit()
    watch.ended()
    return watch.lap()


def _in_calls(jobs: int, call: Callable[[int], None]) -> Lap:
    """One call is the warm-up."""
    watch = Stopwatch(BULK)
    for first in range(1, jobs + 1, BULK):
        watch.started(BULK)
        call(first)
    watch.ended()
    return watch.lap()
