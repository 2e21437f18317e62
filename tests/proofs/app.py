"""A worker process for tests: it says what happens by lines on stdout, and its handlers wait for a byte on stdin."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import Backoff, TaskRegistry, Worker, current_job
from tests.behaviour.business import Effect

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from sa_jobqueue.observe import Event

QUEUE = "work"


def tell(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def wait_for_a_byte() -> None:
    os.read(0, 1)


def build(lease: float, backoff: float) -> TaskRegistry:
    tasks = TaskRegistry()
    retry = Backoff(base=backoff, jitter=0, cap=max(backoff, 1))
    declare = tasks.task(queue=QUEUE, visibility_timeout=lease, backoff=retry)

    @declare
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    @declare
    def hold(session: Session, name: str) -> None:
        """Write the effect, and hang before the end until told to go on."""
        session.add(Effect(name=name))
        session.flush()
        tell("holding", current_job().id)
        wait_for_a_byte()

    @declare
    def hold_then_fail(_session: Session) -> None:
        tell("holding", current_job().id)
        wait_for_a_byte()
        message = "told to fail"
        raise ValueError(message)

    @declare
    def die(_session: Session) -> None:
        """Take the whole process along, as running out of memory does."""
        os.kill(os.getpid(), signal.SIGKILL)

    return tasks


def report(event: Event) -> None:
    """``RunStarted 5``, ``RunEnded 5 done``, ``LeaseWasLost 5``, ``WorkerStopped``…"""
    job = getattr(event, "job", None)
    details = [] if job is None else [job.id, *filter(None, [getattr(event, "outcome", None)])]
    tell(type(event).__name__, *details)


def main(url: str, settings: dict[str, Any]) -> None:
    tasks = build(settings.pop("lease"), settings.pop("backoff"))
    until_empty = settings.pop("until_empty")
    factory = sessionmaker(create_engine(url, pool_size=8))
    Worker(tasks, factory, subscribers=[report], **settings).run(until_empty=until_empty)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
