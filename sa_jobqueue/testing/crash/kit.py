"""The two loops of a user's test: one crash, or one zombie, at each boundary of his own handler's delivery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.orm import Session

from sa_jobqueue.models import Models
from sa_jobqueue.testing.crash.points import Actor, CrashPoint, distinct
from sa_jobqueue.testing.crash.processes import WorkerProcess, WorkerProcesses
from sa_jobqueue.testing.crash.queue import Queue, wait_for

__all__ = ["Crash", "Zombie", "crash_points", "zombies"]

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker process died at ``point``, another one came, and no job is left: now look at your own rows."""

    point: CrashPoint
    number: int
    total: int

    def __str__(self) -> str:
        return f"worker killed {self.point} (point {self.number} of {self.total})"


@dataclass(frozen=True, slots=True)
class Zombie:
    """A worker process slept at ``point`` past its lease, another one came, and the sleeper went on.

    ``parked`` is true if the sleeper's open transaction held the job's row all the while, so that nobody could come.
    """

    point: CrashPoint
    number: int
    total: int
    parked: bool

    def __str__(self) -> str:
        return f"worker paused {self.point} (point {self.number} of {self.total})"


def crash_points(
    drain: str,
    *,
    enqueue: Callable[[Session], object],
    sessions: Callable[[], Session],
    models: Models | None = None,
    timeout: float = 30.0,
) -> Iterator[Crash]:
    """Kill a worker process at each boundary between it and the database, one after the other.

    After each death the leases run out (the rows are changed, nobody waits), a second process drains the queue, and
    the caller gets a :class:`Crash` to assert on what his handler has to show for it.

    Args:
        drain: ``"module:function"``, without arguments: works the queue until it is empty, in a process of its own,
            which has this one's environment. Importing its module must not connect to the database nor start threads.
        enqueue: enqueues one job that is like no other: a fresh dedup key each time. Its session is committed for it.
        sessions: makes sessions on the same database, whose queue nobody else uses meanwhile.
        models: the mapped classes, if they are not the ready-made ones.
        timeout: seconds without a sign of life from a process before the test fails.

    Raises:
        AssertionError: a live job is left, a process failed, or a delivery cannot be repeated.
    """
    with _stage(drain, enqueue, sessions, models or Models(), timeout) as (queue, processes, points):
        for number, point in enumerate(points, 1):
            if _kill(queue, processes, enqueue, point):
                queue.expire_leases()
                processes.start().finish()
                _check_empty(queue, f"a worker was killed {point}")
                yield Crash(point, number, len(points))


def zombies(
    drain: str,
    *,
    enqueue: Callable[[Session], object],
    sessions: Callable[[], Session],
    models: Models | None = None,
    patience: float = 2.0,
    timeout: float = 30.0,
) -> Iterator[Zombie]:
    """Pause a worker process at each boundary, let its lease run out and another one drain the queue, and wake it up.

    The arguments are those of :func:`crash_points`. A sleeper keeps the locks of its open transaction until
    ``idle_in_transaction_session_timeout``; it gets ``patience`` seconds before it counts as parked. Other rows that
    your handler locks make the second process wait: give the worker in ``drain`` an ``idle_timeout`` below ``timeout``.
    """
    with _stage(drain, enqueue, sessions, models or Models(), timeout) as (queue, processes, points):
        for number, point in enumerate(points, 1):
            sleeper = _aimed(queue, processes, enqueue, point, fatal=False)
            if sleeper is None:
                continue
            sleeper.pause()
            parked = not wait_for(lambda: not queue.locked(), patience)
            if not parked:
                queue.expire_leases()
                processes.start().finish()
            sleeper.resume()
            sleeper.finish()
            processes.start().finish()
            _check_empty(queue, f"a worker was paused {point}")
            yield Zombie(point, number, len(points), parked)


@contextmanager
def _stage(
    drain: str, enqueue: Callable[[Session], object], sessions: Callable[[], Session], models: Models, timeout: float
) -> Iterator[tuple[Queue, WorkerProcesses, list[CrashPoint]]]:
    """The queue, the processes, and the points of a delivery that nothing disturbs."""
    queue = Queue(sessions, models)
    with WorkerProcesses(drain, timeout=timeout) as processes:
        _check_empty(queue, "nothing was enqueued")
        queue.enqueue(enqueue)
        passed = processes.start().finish()
        _check_empty(queue, "the drain has returned undisturbed")
        yield queue, processes, distinct(passed)


def _kill(queue: Queue, processes: WorkerProcesses, enqueue: Callable[[Session], object], point: CrashPoint) -> bool:
    victim = _aimed(queue, processes, enqueue, point, fatal=True)
    if victim is not None:
        queue.wait_until_gone(victim.backends)
    return victim is not None


def _aimed(
    queue: Queue, processes: WorkerProcesses, enqueue: Callable[[Session], object], point: CrashPoint, *, fatal: bool
) -> WorkerProcess | None:
    """A process that was stopped at ``point``; None if the keeper, which goes by the clock, did not come by again."""
    for _ in range(_TRIES):
        queue.enqueue(enqueue)
        process = processes.start(point, fatal=fatal)
        if process.dies() if fatal else process.reaches():
            return process
    if point.who is Actor.KEEPER:
        return None
    msg = f"{_TRIES} further deliveries did not pass {point}; crash points need a handler that does the same each time"
    raise AssertionError(msg)


def _check_empty(queue: Queue, after: str) -> None:
    if live := queue.live():
        msg = f"{after}, and these jobs are neither done nor dead letters: {'; '.join(live)}"
        raise AssertionError(msg)
