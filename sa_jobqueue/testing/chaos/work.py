"""The handlers of the fleet. Each run says that it begins, to its journal and to the database, before it does anything.

What a job does is in its arguments: it takes ``seconds``, it fails so many times, it hangs beyond its time limit.
"""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine, func, insert, select
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.tasks import TaskRegistry, current_job
from sa_jobqueue.testing.chaos.history import Deed, Journal, Kind
from sa_jobqueue.testing.chaos.tables import EffectRow, StartRow

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

__all__ = ["HAS_ASYNC", "QUEUE", "Act", "Failure", "Notebook", "make_tasks"]

QUEUE: Final = "chaos"
HAS_ASYNC: Final = importlib.util.find_spec("greenlet") is not None
"""Whether SQLAlchemy can run async handlers here."""

_TIME_LIMIT_IN_LEASES: Final = 3.0
_FOREVER: Final = 20.0
"""Seconds that a hanging handler would take if nobody ended it."""


class Act(StrEnum):
    """What a job does beside its effect."""

    WORK = "work"
    FAIL = "fail"
    """Raises after its effect was flushed."""
    SWALLOW = "swallow"
    """Breaks its transaction and keeps the error to itself."""
    HANG_IN_SQL = "hang_in_sql"
    HANG = "hang"


class Failure(Exception):
    """A handler that failed as planned."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """Where runs are noted; ``engine`` is apart from the handlers', so that a start outlives the handler's rollback."""

    journal: Journal
    engine: Engine

    def begin(self, tag: str) -> EffectRow:
        """Note that a run begins; the answer is the effect that it is to have, not yet added to a session."""
        job, run = current_job(), secrets.token_hex(8)
        self.journal.write(Kind.INVOKE, Deed.RUN, tag, token=job.token, note=run)
        given = {"run": run, "tag": tag, "token": job.token, "worker": self.journal.process}
        with self.engine.begin() as connection:
            connection.execute(insert(StartRow), given)
        self.journal.write(Kind.INVOKE, Deed.EFFECT, tag, key=job.dedup_key, token=job.token, note=run)
        return EffectRow(run=run, tag=tag, key=job.dedup_key, token=job.token)


def make_tasks(notebook: Notebook, lease: float) -> TaskRegistry:
    """The fleet's tasks; their visibility timeout is ``lease`` seconds."""
    tasks = TaskRegistry()
    backoff = Backoff(base=0.1, cap=1.0, jitter=0.2)

    @tasks.task(queue=QUEUE, visibility_timeout=lease, backoff=backoff)
    def work(session: Session, tag: str, act: str, seconds: float, failures: int = 0) -> None:
        effect = notebook.begin(tag)
        threading.Event().wait(seconds)
        session.add(effect)
        _finish(session, act, failures)

    @tasks.task(queue=QUEUE, visibility_timeout=lease, backoff=backoff, time_limit=lease * _TIME_LIMIT_IN_LEASES)
    def hang(session: Session, tag: str, act: str) -> None:
        session.add(notebook.begin(tag))
        session.flush()
        if current_job().attempt > 1:
            return
        if act == Act.HANG_IN_SQL:
            session.execute(select(func.pg_sleep(_FOREVER)))
        else:
            threading.Event().wait(_FOREVER)

    @tasks.task(queue=QUEUE, visibility_timeout=lease, backoff=backoff, core=True)
    def work_core(connection: Connection, tag: str, act: str, seconds: float, failures: int = 0) -> None:
        effect = notebook.begin(tag)
        threading.Event().wait(seconds)
        connection.execute(insert(EffectRow), effect.as_values())
        _end(connection, act, failures)

    if HAS_ASYNC:

        @tasks.task(queue=QUEUE, visibility_timeout=lease, backoff=backoff)
        async def work_async(session: AsyncSession, tag: str, act: str, seconds: float, failures: int = 0) -> None:
            effect = await asyncio.to_thread(notebook.begin, tag)
            await asyncio.sleep(seconds)
            session.add(effect)
            await session.run_sync(_finish, act, failures)

    return tasks


def _finish(session: Session, act: str, failures: int) -> None:
    session.flush()
    _end(session, act, failures)


def _end(given: Session | Connection, act: str, failures: int) -> None:
    """Let the first ``failures`` attempts fail; their effect has been sent to the server."""
    if current_job().attempt > failures or act == Act.WORK:
        return
    if act == Act.SWALLOW:
        _swallow(given)
        return
    msg = f"attempt {current_job().attempt} of {failures} that were to fail"
    raise Failure(msg)


def _swallow(given: Session | Connection) -> None:
    """What careless handlers do."""
    with suppress(DBAPIError):
        given.execute(select(func.sqrt(-1)))
