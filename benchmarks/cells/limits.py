"""What bounds a worker from above and below: loops without our code around the same business INSERT.

The SQL is written out, so that a limit stays where it is when the library's own statements change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import psycopg
from sqlalchemy import make_url, select
from sqlalchemy.orm import Session

from benchmarks.business import Effect
from benchmarks.cells.workers import HANDLERS, application_engine
from benchmarks.laps import WARM, WARM_LOADS, Lap, Stopwatch
from sa_jobqueue import DedupKey, Job

__all__ = [
    "bare",
    "bare_batch",
    "connect",
    "core_floor",
    "floor",
    "in_threads",
    "naive",
    "raw",
    "raw_batch",
    "raw_batch_array",
    "raw_unfenced",
]

CLAIM: Final = """
    WITH picked AS MATERIALIZED (
        SELECT id FROM jobqueue_job WHERE queue = 'default' AND status = 'queued'
        ORDER BY priority, visible_at, id LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE jobqueue_job AS job
    SET status = 'claimed', attempt = attempt + 1, token = token + 1, claimed_by = 'raw',
        claimed_at = statement_timestamp(), visible_at = statement_timestamp() + interval '30 seconds'
    FROM picked WHERE job.id = picked.id RETURNING job.id, job.token, job.args
"""
_CLAIMED: Final = 100
"""The limit in ``CLAIM``."""
EFFECT: Final = "INSERT INTO bench_effect (n) VALUES (%s)"
EFFECTS: Final = "INSERT INTO bench_effect (n) SELECT unnest(%s::int[])"
SETTLE: Final = """
    WITH gone AS (
        DELETE FROM jobqueue_job WHERE id = %s AND token = %s AND claimed_at IS NOT NULL
        RETURNING id, task, dedup_key),
    written AS (INSERT INTO jobqueue_dedup_key (scope, key, job_id) SELECT task, dedup_key, id FROM gone)
    SELECT 1 / count(*) FROM gone
"""
"""Its fence is an error: COMMIT is on its way before the answer is here, so a stale token divides by zero."""
SETTLE_MANY: Final = """
    WITH gone AS (
        DELETE FROM jobqueue_job AS job USING unnest(%s::bigint[], %s::bigint[]) AS held (id, token)
        WHERE job.id = held.id AND job.token = held.token AND job.claimed_at IS NOT NULL
        RETURNING job.id, job.task, job.dedup_key),
    written AS (INSERT INTO jobqueue_dedup_key (scope, key, job_id) SELECT task, dedup_key, id FROM gone)
    SELECT 1 / (count(*) = %s)::int FROM gone
"""
ACK_UNFENCED: Final = "DELETE FROM jobqueue_job WHERE id = ANY(%s)"


def bare(url: str, jobs: int, threads: int, handler_name: str, *, core: bool = False) -> Lap:
    """The business transaction of a handler and nothing else: no queue, ``Session``, handler, commit.

    With ``core`` a ``Connection`` instead of the session, as for a task that has this option.
    """
    watch, engine = Stopwatch(), application_engine(url, threads)
    handler = HANDLERS[handler_name](watch)
    opened = engine.connect if core else partial(Session, engine)

    def transact(numbers: Iterable[int]) -> None:
        for n in numbers:
            with opened() as given:
                handler(given, n)
                given.commit()
            watch.ended()

    in_threads([partial(transact, range(1 + each, jobs + 1, threads)) for each in range(threads)])
    return watch.lap()


def bare_batch(url: str, jobs: int, threads: int, batch: int) -> Lap:
    """The business transaction of the batch handler and nothing else; ``jobs`` is a multiple of ``batch``."""
    watch, engine = Stopwatch(WARM_LOADS * batch), application_engine(url, threads)

    def transact(firsts: Iterable[int]) -> None:
        for first in firsts:
            watch.started(batch)
            with Session(engine) as session:
                session.add_all(Effect(n=n) for n in range(first, first + batch))
                session.commit()
            watch.ended()

    in_threads([partial(transact, range(1 + each * batch, jobs + 1, threads * batch)) for each in range(threads)])
    return watch.lap()


def naive(url: str, threads: int) -> Lap:
    """The worker that one writes first: select for update, add, add, delete, commit, all of it by the unit of work."""
    watch, engine = Stopwatch(), application_engine(url, threads)
    of_queue = select(Job).where(Job.queue == "default", Job.status == "queued")
    head = of_queue.order_by(Job.priority, Job.visible_at, Job.id).limit(1).with_for_update(skip_locked=True)

    def drain() -> None:
        while True:
            with Session(engine) as session:
                if (job := session.scalars(head).first()) is None:
                    return
                watch.started()
                session.add(Effect(n=job.args["n"]))
                session.add(DedupKey(scope=job.task, key=job.dedup_key, job_id=job.id))
                session.delete(job)
                session.commit()
            watch.ended()

    in_threads([drain] * threads)
    return watch.lap()


def floor(url: str, threads: int) -> Lap:
    """What a leased ORM job costs at least: a raw claim for a hundred, and in each handler's session a raw settle."""
    watch, engine = Stopwatch(), application_engine(url, threads)
    handler = HANDLERS["orm"](watch)

    def run(ident: int, token: int, n: int) -> None:
        with Session(engine) as session:
            handler(session, n)
            session.flush()
            session.connection().exec_driver_sql(SETTLE, (ident, token))
            session.commit()

    return _drain_leases(url, threads, run, watch)


def core_floor(url: str, threads: int) -> Lap:
    """:func:`floor` for a Core handler on a connection."""
    watch, engine = Stopwatch(), application_engine(url, threads)
    handler = HANDLERS["core"](watch)

    def run(ident: int, token: int, n: int) -> None:
        with engine.connect() as connection:
            handler(connection, n)
            connection.exec_driver_sql(SETTLE, (ident, token))
            connection.commit()

    return _drain_leases(url, threads, run, watch)


def _drain_leases(url: str, threads: int, run: Callable[[int, int, int], None], watch: Stopwatch) -> Lap:
    def drain() -> None:
        with connect(url) as link:
            while jobs := link.execute(CLAIM).fetchall():
                for ident, token, args in jobs:
                    run(ident, token, args["n"])
                    watch.ended()

    in_threads([drain] * threads)
    return watch.lap()


def raw(url: str, threads: int) -> Lap:
    """One commit a job at the least cost: leases by the hundred; effect, settle and COMMIT in one round trip."""

    def run(link: psycopg.Connection[Any], jobs: list[Any], watch: Stopwatch) -> None:
        with link.pipeline() as pipe:
            for ident, token, args in jobs:
                watch.started()
                link.execute("BEGIN")
                link.execute(EFFECT, (args["n"],))
                link.execute(SETTLE, (ident, token))
                link.execute("COMMIT")
                pipe.sync()
                watch.ended()

    return _drain(url, threads, run)


def raw_batch(url: str, threads: int) -> Lap:
    """One commit for a hundred jobs: one claim, one settle, and the hundred INSERTs of an ``executemany``."""

    def insert(link: psycopg.Connection[Any], numbers: list[int]) -> None:
        link.cursor().executemany(EFFECT, [(n,) for n in numbers])

    return _drain(url, threads, partial(_settle_together, insert), warm=WARM_LOADS * _CLAIMED)


def raw_batch_array(url: str, threads: int) -> Lap:
    """:func:`raw_batch` with one INSERT for a hundred rows, by way of an array: as cheap as the server can be told."""

    def insert(link: psycopg.Connection[Any], numbers: list[int]) -> None:
        link.execute(EFFECTS, (numbers,))

    return _drain(url, threads, partial(_settle_together, insert), warm=WARM_LOADS * _CLAIMED)


def _settle_together(
    insert: Callable[[psycopg.Connection[Any], list[int]], None],
    link: psycopg.Connection[Any],
    jobs: list[Any],
    watch: Stopwatch,
) -> None:
    watch.started(len(jobs))
    with link.pipeline():
        link.execute("BEGIN")
        insert(link, [args["n"] for _, _, args in jobs])
        link.execute(SETTLE_MANY, ([each[0] for each in jobs], [each[1] for each in jobs], len(jobs)))
        link.execute("COMMIT")
    watch.ended()


def raw_unfenced(url: str, threads: int) -> Lap:
    """What many queues do: the effect commits by itself, and a hundred jobs are acknowledged together, later."""

    def run(link: psycopg.Connection[Any], jobs: list[Any], watch: Stopwatch) -> None:
        with link.pipeline() as pipe:
            for _, _, args in jobs:
                watch.started()
                link.execute(EFFECT, (args["n"],))
                pipe.sync()
            link.execute(ACK_UNFENCED, ([each[0] for each in jobs],))
        watch.ended()

    return _drain(url, threads, run)


def connect(url: str) -> psycopg.Connection[Any]:
    """A driver's connection in autocommit, which prepares what it sees twice."""
    given = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg.connect(given, autocommit=True)
    connection.prepare_threshold = 1
    return connection


def _drain(
    url: str, threads: int, run: Callable[[psycopg.Connection[Any], list[Any], Stopwatch], None], *, warm: int = WARM
) -> Lap:
    watch = Stopwatch(warm)

    def drain() -> None:
        with connect(url) as link:
            while jobs := link.execute(CLAIM).fetchall():
                run(link, jobs, watch)

    in_threads([drain] * threads)
    return watch.lap()


def in_threads(tasks: Iterable[Callable[[], None]]) -> None:
    """Run all at the same time; the first error of any is raised when all have ended."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the caller's thread
            errors.append(error)

    running = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
