"""A supervisor for tests, on processes that tell what happens by lines on stdout, as ``tests.proofs.app`` does.

``method`` is how a child begins. ``opened`` opens a connection of the engine before the children are started and uses
it after they have ended: ``before`` and ``after`` are its server process, followed by the rows that it has written;
``idle`` is that of one which lies in the pool meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import TaskRegistry, Worker, current_job
from sa_jobqueue.observe import Event, ProcessEnded, ProcessStarted, WorkerStarted
from sa_jobqueue.worker.supervisor import Supervisor
from tests.behaviour.business import Effect
from tests.proofs.app import build as usual_tasks
from tests.proofs.app import tell

if TYPE_CHECKING:
    from collections.abc import Callable

LOCK = 53
_BACKEND = text("SELECT pg_backend_pid()")


def build(lease: float, backoff: float) -> TaskRegistry:
    tasks = usual_tasks(lease, backoff)
    declare = tasks.task(queue="work", visibility_timeout=lease)

    @declare
    def await_lock(session: Session, name: str) -> None:
        """Write the effect, and go on when the test lets go of its advisory lock."""
        session.add(Effect(name=name))
        session.flush()
        tell("holding", current_job().id)
        session.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))

    @declare
    def tell_backend(session: Session) -> None:
        tell("backend", session.scalar(_BACKEND))

    @declare
    def crash(_session: Session) -> None:
        """On this very thread: sent to the process, the signal may reach another one, and the handler may return."""
        signal.raise_signal(signal.SIGSEGV)

    @declare
    def leave(_session: Session) -> None:
        os._exit(0)

    @declare
    def hang(_session: Session) -> None:
        """Make the process deaf to everything but SIGKILL."""
        tell("hanging", current_job().id)
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()

    @declare
    def wait_for_ever(_session: Session) -> None:
        tell("holding", current_job().id)
        threading.Event().wait()

    return tasks


def make(engine: Engine | None, url: str, settings: dict[str, Any]) -> Worker:
    if "code" in settings:
        sys.exit(settings["code"])
    factory = sessionmaker(engine or create_engine(url, pool_size=8))
    tasks = build(settings.pop("lease"), settings.pop("backoff"))
    return Worker(tasks, factory, subscribers=[report], **settings)


def report(event: Event) -> None:
    """``serving 4711 name-1``, ``ProcessStarted 4711``, ``ProcessEnded 4711 -9``, ``RunEnded 5 done``…"""
    kind = type(event).__name__
    match event:
        case WorkerStarted():
            tell("serving", os.getpid(), event.worker)
        case ProcessStarted():
            tell(kind, event.pid)
        case ProcessEnded():
            tell(kind, event.pid, event.code)
        case _:
            job = getattr(event, "job", None)
            details = [] if job is None else [job.id, *filter(None, [getattr(event, "outcome", None)])]
            tell(kind, *details)


def main(url: str, settings: dict[str, Any]) -> int:
    given = {name: settings.pop(name) for name in ("processes", "method", "until_empty") if name in settings}
    opened = settings.pop("opened", False)
    engine = create_engine(url, pool_size=8) if opened else None
    supervisor = Supervisor(partial(make, engine, url, settings), subscribers=[report], name="boss", **given)
    return supervisor.run() if engine is None else _around(engine, supervisor.run)


def _around(engine: Engine, run: Callable[[], int]) -> int:
    with engine.connect() as open_one:
        with engine.connect() as idle:
            tell("idle", idle.scalar(_BACKEND))
        open_one.execute(text("INSERT INTO effect (name) VALUES ('of the parent')"))
        tell("before", open_one.scalar(_BACKEND))
        code = run()
        with engine.connect() as idle:
            idle.execute(text("SELECT 1"))
        tell("after", open_one.scalar(_BACKEND))
        open_one.commit()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
