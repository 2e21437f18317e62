"""How new jobs come into the table: one, many by arrays or by COPY, and those whose unique key may be held."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from sa_jobqueue import bulk
from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.models import Models
from sa_jobqueue.statements import enqueue
from sa_jobqueue.states import State
from sa_jobqueue.values import EnqueuedJob, NewJob
from sa_jobqueue.wire import fetch, in_autocommit, send

__all__ = ["insert_all", "insert_one"]

_TRIES = 5
_encode = json.JSONEncoder(ensure_ascii=False).encode


def insert_one(connection: Connection, models: Models, job: NewJob) -> EnqueuedJob:
    """Insert a job without a unique key."""
    ((job_id, status, _),) = fetch(connection, enqueue.enqueue(models, unique=False), _parameters(job))
    return EnqueuedJob(job_id, created=True, status=State(status))


def insert_all(connection: Connection, models: Models, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
    """Insert any number of jobs; the answers stand in their order, the second one of a key got the first one's job."""
    if len(jobs) == 1 and jobs[0].unique_key is None:
        return [insert_one(connection, models, jobs[0])]
    keyed = [job for job in jobs if job.unique_key is not None]
    plain = iter(_insert_plain(connection, models, [job for job in jobs if job.unique_key is None]))
    made = _insert_keyed(connection, models, keyed) if keyed else {}
    answers = []
    for job in jobs:
        if job.unique_key is None:
            answers.append(next(plain))
        else:
            answers.append(made[job.unique_key])
            made[job.unique_key] = EnqueuedJob(answers[-1].id, created=False, status=answers[-1].status)
    return answers


def _insert_plain(connection: Connection, models: Models, jobs: Sequence[NewJob]) -> list[EnqueuedJob]:
    if not jobs:
        return []
    if len(jobs) >= bulk.LEAST and all(job.delay is None and job.run_at is None for job in jobs):
        ids = bulk.copy_jobs(connection, models, [_copied(job) for job in jobs])
        if ids is not None:
            return [EnqueuedJob(job_id, created=True, status=State.QUEUED) for job_id in ids]
    rows = send(connection, enqueue.enqueue_many(models, unique=False), _arrays(jobs)).all()
    made = sorted(rows, key=lambda row: row.id)
    return [EnqueuedJob(row.id, created=True, status=State(row.status)) for row in made]


def _insert_keyed(connection: Connection, models: Models, jobs: Sequence[NewJob]) -> dict[str, EnqueuedJob]:
    """One answer a key. A holder may finish between our insert and our look at it: then the key is free again.

    All is tried again then, from a savepoint: a lower key taken while higher ones are held would break the order that
    keeps two bulk calls from waiting for each other in a circle. (The savepoint of the connection, not of the session:
    that one would flush the caller's objects.)
    """
    first = {job.unique_key: job for job in reversed(jobs) if job.unique_key is not None}
    for _ in range(_TRIES):
        with _undoable(connection, several=len(first) > 1) as undo:
            answers = _made_or_held(connection, models, first)
            if len(answers) == len(first):
                return answers
            undo()
    msg = f"a holder of one of the unique keys came and went {_TRIES} times; enqueue again"
    raise JobQueueError(msg)


@contextmanager
def _undoable(connection: Connection, *, several: bool) -> Iterator[Callable[[], None]]:
    """A savepoint, where more than one key can be held; in AUTOCOMMIT none is held, and there is no savepoint."""
    if not several or in_autocommit(connection):
        yield lambda: None
        return
    with connection.begin_nested() as savepoint:
        yield savepoint.rollback


def _made_or_held(connection: Connection, models: Models, wanted: Mapping[str, NewJob]) -> dict[str, EnqueuedJob]:
    rows = send(connection, enqueue.enqueue_many(models, unique=True), _arrays(list(wanted.values()))).all()
    answers = {row.unique_key: EnqueuedJob(row.id, created=True, status=State(row.status)) for row in rows}
    if missing := list(wanted.keys() - answers.keys()):
        held = send(connection, enqueue.holders(models), {"keys": missing})
        answers |= {row.unique_key: EnqueuedJob(row.id, created=False, status=State(row.status)) for row in held}
    return answers


def _parameters(job: NewJob) -> dict[str, Any]:
    return {
        "queue": job.queue,
        "task": job.task,
        "args": _json(job.args),
        "headers": _json(job.headers),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "delay": job.delay_seconds,
        "run_at": job.run_at,
        "dedup_key": job.dedup_key,
        "unique_key": job.unique_key,
    }


def _arrays(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    rows = [_parameters(job) for job in jobs]
    return {name: [row[name] for row in rows] for name in enqueue.COLUMNS}


def _copied(job: NewJob) -> tuple[Any, ...]:
    return (
        job.queue,
        job.task,
        _json(job.args),
        _json(job.headers),
        job.priority,
        job.max_attempts,
        job.dedup_key,
    )


def _json(value: Mapping[str, Any] | None) -> str:
    return "{}" if value is None else _encode(value)
