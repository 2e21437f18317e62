"""An application whose processes the tests of this folder kill and pause. Its settings are in the environment.

DATABASE_URL; RUN is what a process does (module:function); QUEUES to serve, with commas; IDLE and CONTROL are the
timeouts of the worker in seconds; EVENTS names a file that gets one line (process, event, job) for whatever a test
wants to know.
"""

from __future__ import annotations

import json
import os
import pkgutil
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import Connection, create_engine, insert, make_url, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sa_jobqueue import Backoff, TaskRegistry, Worker, current_job
from sa_jobqueue.observe import Event, LeaseWasLost

if TYPE_CHECKING:
    from collections.abc import Callable

WRITTEN, NEVER = threading.Event(), threading.Event()
LEASE, SHORT_LEASE = 30.0, 4.5
"""Visibility timeouts in seconds; under the long one no beat is due in a test."""

tasks = TaskRegistry()


class Base(DeclarativeBase):
    pass


class Effect(Base):
    """A business row. Nothing in the database keeps a job from having two of them."""

    __tablename__ = "effect"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    process: Mapped[int] = mapped_column(default=os.getpid)


@tasks.task(visibility_timeout=LEASE)
def write(session: Session, name: str) -> None:
    """A read and a write: there are boundaries in the middle of the job, and an open transaction between them."""
    session.get(Effect, 0)
    session.add(Effect(name=name))
    session.flush()


@tasks.task(visibility_timeout=LEASE)
async def awrite(session: AsyncSession, name: str) -> None:
    await session.get(Effect, 0)
    session.add(Effect(name=name))
    await session.flush()


@tasks.task(visibility_timeout=LEASE, core=True)
def core_write(connection: Connection, name: str) -> None:
    """:func:`write` on a connection."""
    connection.execute(select(Effect.id).where(Effect.id == 0))
    connection.execute(insert(Effect).values(name=name))


@tasks.task(visibility_timeout=LEASE, core=True)
async def acore_write(connection: AsyncConnection, name: str) -> None:
    await connection.execute(select(Effect.id).where(Effect.id == 0))
    await connection.execute(insert(Effect).values(name=name))


@tasks.task(visibility_timeout=LEASE, backoff=Backoff(base=0.001, cap=0.001, jitter=0))
def fail_first(session: Session, name: str) -> None:
    write(session, name)
    if current_job().attempt == 1:
        msg = "the first attempt always fails"
        raise ValueError(msg)


@tasks.task(visibility_timeout=LEASE)
def fail(session: Session, name: str) -> None:
    write(session, name)
    msg = "every attempt fails"
    raise ValueError(msg)


@tasks.task(visibility_timeout=LEASE)
def write_apart(session: Session, name: str) -> None:
    """What a handler should not do: its effect is committed on a connection of its own."""
    session.get(Effect, 0)
    with Session(create_engine(os.environ["DATABASE_URL"])) as apart:
        write(apart, name)
        apart.commit()


@tasks.task(visibility_timeout=LEASE)
def call(session: Session, name: str) -> None:
    """An effect outside of the database, with the fencing token for the receiving side."""
    session.get(Effect, 0)
    said = json.dumps({"key": name, "token": current_job().token}).encode()
    urllib.request.urlopen(os.environ["RECEIVER"], data=said, timeout=10).close()  # noqa: S310 - a URL of the test


@tasks.task(visibility_timeout=SHORT_LEASE)
def outlast_a_beat(session: Session, name: str) -> None:
    """Return when the lease was extended; looks with a connection that is no boundary."""
    write(session, name)
    WRITTEN.set()
    url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql", query={})
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as look:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            row = look.execute("SELECT visible_at FROM jobqueue_job WHERE id = %s", [current_job().id]).fetchone()
            if row is None or row[0] > current_job().lease_expires_at:
                return
            NEVER.wait(0.02)
    msg = "no beat came in 10 s"
    raise TimeoutError(msg)


def run() -> None:
    """The one entry: a process does what RUN says."""
    pkgutil.resolve_name(os.environ["RUN"])()


def work() -> None:
    """Lease style: a worker on the queues, until they are empty."""
    new_worker().run(until_empty=True)


def work_until_it_has_written() -> None:
    """A worker that is told to stop when its handler has written, and gives it no time."""
    worker = new_worker(grace=0)

    def stop() -> None:
        WRITTEN.wait(30)
        worker.stop()

    threading.Thread(target=stop, daemon=True).start()
    worker.run()


def new_worker(*subscribers: Callable[[Event], None], grace: float = 30) -> Worker:
    url = os.environ["DATABASE_URL"]
    return Worker(
        tasks,
        sessionmaker(create_engine(url)),
        async_sessionmaker=async_sessionmaker(create_async_engine(url)),
        queues=os.environ["QUEUES"].split(","),
        name=str(os.getpid()),
        idle_timeout=float(os.environ.get("IDLE", "300")),
        control_timeout=float(os.environ.get("CONTROL", "3")),
        job_log=True,
        grace=grace,
        subscribers=[_on_event, *subscribers],
    )


def tell(event: str, job_id: int) -> None:
    """Add a line to the file of events."""
    with Path(os.environ["EVENTS"]).open("a") as file:
        file.write(f"{os.getpid()} {event} {job_id}\n")


def _on_event(event: Event) -> None:
    if isinstance(event, LeaseWasLost):
        tell("LeaseWasLost", event.job.id)
