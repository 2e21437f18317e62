"""What a hint costs those who enqueue: sixteen sessions that commit one job each, over and over.

They are 4 processes of 4 threads: one process could not load the server, and hints are debounced for each engine, so
for each process. One connection listens in every cell, as a worker would, and tells whether the hints were sent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.business import TASK
from benchmarks.cells.limits import in_threads
from benchmarks.cells.workers import application_engine
from benchmarks.children import in_children
from benchmarks.laps import Lap, Stopwatch, together
from benchmarks.meter import metering
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults
from sa_jobqueue import JobSession
from sa_jobqueue.models import Models
from sa_jobqueue.statements import hint

__all__ = ["Notify", "cells", "contend"]

_PROCESSES: Final = 4
_THREADS: Final = 4
_OFF: Final = {"sa_jobqueue_hints": False}
_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload)")
_PAYLOAD: Final = {"channel": hint.channel(Models()), "payload": hint.mark("default")}
_WARM: Final = 20
"""Of the jobs of one process."""
_TURN: Final = 0.1


class Notify(Enum):
    """Whether a NOTIFY comes with a job, and where: ours after the commit, or the application's within."""

    AFTER_COMMIT = "hint"
    NEVER = "hint_off"
    IN_TRANSACTION = "hint_in_transaction"


def cells(jobs: int) -> list[Cell]:
    """``jobs`` of all sessions together."""
    return [Cell(notify.value, jobs, partial(contend, notify)) for notify in Notify]


def contend(notify: Notify, arena: Arena, jobs: int) -> Sample:
    """One run; ``jobs`` is a multiple of the sessions, or a little less is made."""
    arena.clear()
    arena.settle_down()
    share = jobs // (_PROCESSES * _THREADS)
    made = share * _PROCESSES * _THREADS
    with _listening(arena) as heard, metering(arena, made) as cost:
        arguments = (arena.url, share, notify)
        lap = together(in_children(_commit_jobs, arguments, _PROCESSES))
    values = {"jobs_per_s": lap.jobs_per_s, "cpu_us": lap.cpu_us, "hints": len(heard) / made, **cost}
    wrong = (*faults(arena, Counted(0, 0, 0, jobs_left=made)), *_misheard(heard, notify))
    return Sample(values, wrong)


def _misheard(heard: list[str], notify: Notify) -> tuple[str, ...]:
    """A cell without the hints that it is named for, or with others, compares nothing."""
    if bool(heard) == (notify is not Notify.NEVER):
        return ()
    return (f"hints heard: {len(heard)}, expected {'none' if heard else 'some'}",)


def _commit_jobs(url: str, share: int, notify: Notify) -> Lap:
    """The sessions of one process; each commits ``share`` jobs."""
    options: dict[str, Any] = {} if notify is Notify.AFTER_COMMIT else {"execution_options": _OFF}
    engine, watch = application_engine(url, _THREADS, **options), Stopwatch(_WARM)

    def produce(thread: int) -> None:
        for n in range(share):
            watch.started()
            with Session(engine) as session:
                JobSession(session).enqueue(TASK, {"n": n}, dedup_key=f"{os.getpid()}:{thread}:{n}")
                if notify is Notify.IN_TRANSACTION:
                    session.execute(_NOTIFY, _PAYLOAD)
                session.commit()
            watch.ended()

    in_threads([partial(produce, thread) for thread in range(_THREADS)])
    return watch.lap()


@contextmanager
def _listening(arena: Arena) -> Iterator[list[str]]:
    """What one connection hears while the block runs."""
    heard: list[str] = []
    over = threading.Event()
    with arena.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(hint.listen(Models()))
        ear = threading.Thread(target=_hear, args=(connection.connection.driver_connection, heard.append, over))
        ear.start()
        try:
            yield heard
        finally:
            over.set()
            ear.join()
            connection.invalidate()  # the pool must not hand out a connection that listens


def _hear(driver: Any, told: Callable[[str], None], over: threading.Event) -> None:
    while not over.is_set():
        for notice in driver.notifies(timeout=_TURN):
            told(notice.payload)
