"""What the kit asks of the queue's tables, always in transactions of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from sa_jobqueue.models import Models
from sa_jobqueue.states import State

__all__ = ["Queue"]

_GONE = text("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ANY(:pids))")


class Queue:
    """The live jobs, seen through sessions that ``sessions`` makes."""

    def __init__(self, sessions: Callable[[], Session], models: Models) -> None:
        self._sessions, self._job = sessions, models.job

    def enqueue(self, enqueue: Callable[[Session], object]) -> None:
        """Commit what the test's own function enqueues."""
        with self._sessions() as session, session.begin():
            enqueue(session)

    def expire_leases(self) -> None:
        """Let every lease run out now; the rows that a paused transaction has locked are left alone."""
        claimed = select(self._job.id).where(self._job.status == State.CLAIMED).with_for_update(skip_locked=True)
        expired = update(self._job).where(self._job.id.in_(claimed)).values(visible_at=func.statement_timestamp())
        with self._sessions() as session, session.begin():
            session.execute(expired.execution_options(synchronize_session=False))

    def live(self) -> list[str]:
        """The jobs that are neither done nor dead letters, in words."""
        with self._sessions() as session:
            jobs = session.scalars(select(self._job).order_by(self._job.id))
            return [f"job {job.id} ({job.task}) is {job.status}, attempt {job.attempt}" for job in jobs]

    def locked(self) -> bool:
        """Whether a transaction that is still open holds a live job."""
        ids: Any = select(self._job.id)
        with self._sessions() as session:
            return len(session.execute(ids).all()) > len(session.execute(ids.with_for_update(skip_locked=True)).all())

    def wait_until_gone(self, backends: Sequence[int]) -> None:
        """Return when the server has noticed the death of the process that these sessions belonged to."""

        def gone() -> bool:
            with self._sessions() as session:
                return bool(session.scalar(_GONE, {"pids": list(backends)}))

        if not wait_for(gone, 30.0):
            msg = f"the server keeps the sessions of a dead process for more than 30 s: {backends}"
            raise AssertionError(msg)


def wait_for(true: Callable[[], bool], timeout: float) -> bool:
    """Whether ``true()`` becomes so within ``timeout`` seconds."""
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while not true():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.005)
    return True
