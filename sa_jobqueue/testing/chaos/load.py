"""The load: a process of several enqueuers and one operator, until its stdin ends.

``python -m sa_jobqueue.testing.chaos.load ORDERS``, the database in its environment; ``ORDERS`` is JSON of
:class:`LoadOrders`. The same seed gives the same requests, though not the same moments.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Engine, create_engine, func, insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.models import Job
from sa_jobqueue.session import JobSession
from sa_jobqueue.states import State
from sa_jobqueue.testing.chaos.crew import URL_VARIABLE
from sa_jobqueue.testing.chaos.history import Deed, Journal, Kind
from sa_jobqueue.testing.chaos.requests import Request, draw_request
from sa_jobqueue.testing.chaos.tables import Order, RedriveRow

__all__ = ["LoadOrders"]

_OPERATE_EVERY: Final = 1.0
_AFTER_AN_OUTAGE: Final = 0.3
_OPTIONS: Final = "-c lock_timeout=2000"
"""An operator who waits behind a paused worker's row lock gives up."""


@dataclass(frozen=True, slots=True)
class LoadOrders:
    """What the load is told; ``rate`` is requests per second of all ``enqueuers`` together.

    They wait while more than ``backlog`` jobs are queued: behind a long queue, a job whose owner was stopped would not
    be taken over before that one goes on.
    """

    folder: str
    seed: int
    lease: float
    rate: float
    enqueuers: int
    backlog: int

    def as_text(self) -> str:
        """The argument of the command."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Back from the argument."""
        return cls(**json.loads(text))


class Enqueuer:
    """Makes requests one after another, each in a transaction that also writes its order."""

    def __init__(self, name: str, engine: Engine, journal: Journal, orders: LoadOrders) -> None:
        self._name, self._engine, self._journal = name, engine, journal
        self._chance = random.Random(f"{orders.seed} {name}")  # noqa: S311 - repeatable on purpose
        self._lease, self._backlog, self._pause = orders.lease, orders.backlog, orders.enqueuers / orders.rate
        self._count = 0

    def work(self, over: threading.Event) -> None:
        """Enqueue until it is over."""
        while not over.wait(self._chance.uniform(0.5, 1.5) * self._pause):
            if not self._has_room():
                continue
            group = [self._draw() for _ in range(self._chance.choice((1, 1, 1, 1, 1, 5)))]
            try:
                self._enqueue(group, commit=self._chance.random() > 0.08)  # noqa: PLR2004 - one in twelve is undone
            except DBAPIError:
                over.wait(_AFTER_AN_OUTAGE)

    def _has_room(self) -> bool:
        queued = select(func.count()).select_from(Job).where(Job.status == State.QUEUED)
        try:
            with Session(self._engine) as session:
                return (session.scalar(queued) or 0) <= self._backlog
        except DBAPIError:
            return False

    def _draw(self) -> Request:
        self._count += 1
        return draw_request(self._chance, f"{self._name}-{self._count}", self._lease)

    def _enqueue(self, group: list[Request], *, commit: bool) -> None:
        """Until COMMIT is sent an error means that nothing happened; after that, nobody can tell."""
        self._tell(Kind.INVOKE, group)
        outcome = Kind.FAIL
        try:
            with Session(self._engine) as session:
                session.add_all([Order(tag=request.tag, key=request.key) for request in group])
                self._send(JobSession(session), group)
                session.flush()
                if commit:
                    outcome = Kind.INFO
                    session.commit()
                    outcome = Kind.OK
        finally:
            self._tell(outcome, group)

    def _send(self, jobs: JobSession, group: list[Request]) -> None:
        if len(group) > 1:
            jobs.enqueue_many([request.as_job() for request in group])
        else:
            job = group[0].as_job()
            jobs.enqueue(
                job.task,
                job.args,
                queue=job.queue,
                delay=job.delay,
                priority=job.priority,
                max_attempts=job.max_attempts,
                dedup_key=job.dedup_key,
            )

    def _tell(self, kind: Kind, group: list[Request]) -> None:
        for request in group:
            self._journal.write(kind, Deed.ENQUEUE, request.tag, key=request.key)


class Operator:
    """Redrives dead letters and cancels live jobs now and then."""

    def __init__(self, engine: Engine, journal: Journal, seed: int) -> None:
        self._engine, self._journal = engine, journal
        self._chance = random.Random(f"{seed} operator")  # noqa: S311 - repeatable on purpose

    def work(self, over: threading.Event) -> None:
        """Operate until it is over."""
        while not over.wait(_OPERATE_EVERY):
            deed = self._chance.choice((self._redrive, self._cancel))
            try:
                with Session(self._engine) as session, session.begin():
                    note = deed(session)
            except DBAPIError as error:
                note = type(error.orig).__name__
            self._journal.write(Kind.INFO, Deed.OPERATE, note=note)

    def _redrive(self, session: Session) -> str:
        done = JobSession(session).redrive(limit=2).redriven
        if done:
            session.execute(insert(RedriveRow), [{"job_id": job_id} for job_id in done])
        return f"redrive {done}"

    def _cancel(self, session: Session) -> str:
        job_id = session.scalar(select(Job.id).order_by(Job.id.desc()).limit(1))
        done = job_id is not None and JobSession(session).cancel(job_id)
        return f"cancel {job_id}: {done}"


def work(orders: LoadOrders) -> None:
    """Run the enqueuers and the operator until stdin ends."""
    journal, over = Journal(Path(orders.folder), "load"), threading.Event()
    arguments = {"application_name": "chaos-enqueuer", "options": _OPTIONS}
    engine = create_engine(os.environ[URL_VARIABLE], pool_size=orders.enqueuers + 1, connect_args=arguments)
    works: list[Callable[[threading.Event], None]] = [Operator(engine, journal, orders.seed).work]
    works += [Enqueuer(f"e{number}", engine, journal, orders).work for number in range(orders.enqueuers)]
    threads = [threading.Thread(target=each, args=(over,)) for each in works]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    engine.dispose()


if __name__ == "__main__":
    work(LoadOrders.of(sys.argv[1]))
