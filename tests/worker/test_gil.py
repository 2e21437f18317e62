"""A handler that holds Python's global lock: its worker's heartbeats stop with everything else in the process."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import TYPE_CHECKING

from sa_jobqueue.observe import LeaseWasLost
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events


def test_a_handler_that_holds_the_gil_beyond_its_lease_loses_the_job_and_commits_nothing(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    engine: Engine,
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=1)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=f"late {name}"))
        session.flush()
        _stand_still_until_it_ends(_spawn_another_worker(engine))

    @tasks.task(queue=QUEUE)
    def only_known_here(session: Session) -> None:
        session.add(Effect(name="next"))

    job = enqueue("mark", {"name": "the job"})
    enqueue("only_known_here")
    crew.drain(concurrency=1)
    assert [event.job.id for event in events.of(LeaseWasLost)] == [job.id]
    assert (events.outcomes(), observer.effects()) == (["done"], ["the job", "next"])


_APP = "import runpy, signal; signal.alarm(60); runpy.run_module('tests.proofs.app', run_name='__main__')"
"""Nothing could interrupt the test's own process while it waits for one that hangs."""


def _spawn_another_worker(engine: Engine) -> int:
    """A process that drains the queue; it ends when it has taken the job over and done it."""
    settings = json.dumps({"lease": 30, "backoff": 1, "until_empty": True})
    command = [sys.executable, "-c", _APP, engine.url.render_as_string(hide_password=False), settings]
    path = os.pathsep.join(filter(None, sys.path))
    return os.posix_spawn(sys.executable, command, {**os.environ, "PYTHONPATH": path})


def _stand_still_until_it_ends(process: int) -> None:
    """Unlike ``os.waitpid`` or CDLL, PyDLL does not let go of the lock while the C function waits."""
    ctypes.PyDLL(None).waitpid(process, None, 0)
