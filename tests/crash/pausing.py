"""One delivery, paused at every boundary: each zombie has a queue of its own, and this process owns their jobs next."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.orm import Session

from sa_jobqueue import ClaimedJob, Job, JobLog, JobSession
from tests.crash.app import Effect
from tests.waiting import wait_until

if TYPE_CHECKING:
    from sa_jobqueue.testing.crash.points import CrashPoint
    from sa_jobqueue.testing.crash.processes import WorkerProcess
    from tests.crash.ground import Ground
    from tests.crash.killing import Delivery

IDLE_MILLISECONDS = 3_000
_AT_ONCE = 6


@dataclass(slots=True)
class Zombie:
    """A process that stands still at ``point``; ``held`` tells whether the committed row says that it owns its job."""

    point: CrashPoint
    process: WorkerProcess
    queue: str
    job_id: int
    held: bool = False
    heir: ClaimedJob | None = None
    """The job, as its next owner has claimed it."""
    next_id: int | None = None
    """A job that comes later in the same queue."""

    def goes_on(self, ground: Ground) -> bool:
        """Whether it has done the next job."""
        with Session(ground.engine) as session:
            done = select(JobLog.worker).where(JobLog.job_id == self.next_id, JobLog.outcome == "done")
            return session.scalars(done).all() == [str(self.process.pid)]


def pause_everywhere(ground: Ground, delivery: Delivery) -> list[Zombie]:
    """Zombies at all boundaries, whose leases have run out and whose idle transactions the server has ended."""
    points = _since_the_start(delivery.rehearse(ground))
    zombies: list[Zombie] = []
    for start in range(0, len(points), _AT_ONCE):
        some = enumerate(points[start : start + _AT_ONCE], start)
        zombies += [_start(ground, delivery, f"zombie-{at}", point) for at, point in some]
        for zombie in zombies[start:]:
            process = zombie.process
            assert process.reaches(), f"{zombie.point} was not passed again; the last were {process.passed[-9:]}"
            process.pause()
    for zombie in zombies:
        zombie.held = ground.fates([zombie.job_id])[0].status == "claimed"
    backends = [backend for zombie in zombies for backend in zombie.process.backends]
    wait_until(lambda: not ground.idle_in_transaction(backends), timeout=60, what="the server to end idle transactions")
    ground.queue.expire_leases()
    return zombies


def inherit(ground: Ground, zombies: list[Zombie]) -> None:
    """Claim every job that a zombie has not finished."""
    for zombie in zombies:
        with Session(ground.engine) as session, session.begin():
            zombie.heir = JobSession(session).claim(zombie.queue, visibility_timeout=600, worker="heir")


def finish(ground: Ground, zombies: list[Zombie]) -> None:
    """Do the inherited jobs."""
    for zombie in zombies:
        if zombie.heir is not None:
            with Session(ground.engine) as session, session.begin():
                session.add(Effect(name=zombie.queue, process=os.getpid()))
                session.flush()
                JobSession(session, job_log=True).ack(zombie.heir)


def revive(ground: Ground, zombies: list[Zombie], task: str) -> None:
    """Let the zombies go on, a few at a time, until each that has lost its job has done another one of its queue.

    All at once they would be too many for the machine, and leases run out for that reason alone.
    """
    for start in range(0, len(zombies), _AT_ONCE):
        some = zombies[start : start + _AT_ONCE]
        for zombie in some:
            if zombie.heir is not None:
                zombie.next_id = ground.enqueue(zombie.queue, task, name=f"next-{zombie.queue}")
            zombie.process.resume()
        for zombie in some:
            if zombie.heir is not None:
                wait_until(partial(zombie.goes_on, ground), timeout=60, what=f"the next job of zombie {zombie.point}")


def rows(ground: Ground, zombies: list[Zombie]) -> dict[int, dict[str, object]]:
    """The rows of the inherited jobs, whole."""
    ids = [zombie.heir.id for zombie in zombies if zombie.heir is not None]
    with Session(ground.engine) as session:
        found = session.execute(select(*Job.__table__.columns).where(Job.id.in_(ids))).mappings()
        return {row["id"]: dict(row) for row in found}


def _since_the_start(points: list[CrashPoint]) -> list[CrashPoint]:
    """Without those before the first sweep or claim: a worker that cannot even start says so and ends."""
    first = next(at for at, point in enumerate(points) if point.what in {"sweep", "claim"})
    return points[first:]


def _start(ground: Ground, delivery: Delivery, queue: str, point: CrashPoint) -> Zombie:
    job_id = delivery.enqueue(ground, queue)
    impatient = {"DATABASE_URL": ground.impatient_url(IDLE_MILLISECONDS)}
    return Zombie(point, ground.start(delivery.run, [queue], point, **impatient), queue, job_id)
