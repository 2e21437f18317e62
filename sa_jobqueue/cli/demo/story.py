"""The course of the demo: receive, work, kill, recover, drain."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import Engine, Select, func, select
from sqlalchemy.orm import Session

from sa_jobqueue.cli.demo import plot
from sa_jobqueue.cli.demo.business import Base, Delivery, RepositoryEvent, Role, receive
from sa_jobqueue.cli.problems import Problem
from sa_jobqueue.models import DeadLetter, Job
from sa_jobqueue.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sa_jobqueue.cli.demo.fleet import Fleet
    from sa_jobqueue.cli.demo.webhooks import Webhook

__all__ = ["Audience", "Course", "Progress"]

_LOOK_INTERVAL: Final = 0.1
_LONGEST_STANDSTILL: Final = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at the queue and at what came of it."""

    queued: int
    claimed: int
    scheduled: int
    effects: int
    dead: int
    deliveries: int

    @property
    def live(self) -> int:
        """Jobs that are not finished."""
        return self.queued + self.claimed + self.scheduled


class Audience(Protocol):
    """Who watches the demo."""

    def say(self, sentence: str) -> None:
        """Something happened."""

    def show(self, progress: Progress) -> None:
        """The queue looks so now."""


@dataclass(frozen=True, slots=True)
class Course:
    """The demo on one empty database; ``check`` is called wherever it can be broken off, and raises to do so."""

    engine: Engine
    fleet: Fleet
    audience: Audience
    check: Callable[[], None]

    def play(self, webhooks: Sequence[Webhook]) -> int:
        """Run it all; the answer is how many workers were killed while they held a job.

        Raises:
            Problem: a worker ended by itself, or nothing moved any more.
        """
        from sa_jobqueue.migrations import runner  # noqa: PLC0415 - Alembic is not for the other commands

        runner.migrate(self.engine)
        Base.metadata.create_all(self.engine)
        for name in ("demo-1", "demo-2"):
            self.fleet.start(name)
        self._receive_all(webhooks)
        killed = self._kill_one()
        self.fleet.start("demo-3")
        self._wait(lambda progress: progress.live == 0)
        self.audience.say("the queue is empty")
        self.fleet.dismiss()
        self.check()
        return killed

    def _receive_all(self, webhooks: Sequence[Webhook]) -> None:
        roles = plot.cast(webhooks)
        arriving = plot.sendings(webhooks, roles)
        with Session(self.engine) as session:
            for webhook in arriving:
                self.check()
                with session.begin():
                    receive(session, webhook, roles.get(webhook.delivery))
        stored = len({webhook.delivery for webhook in webhooks})
        self.audience.say(f"{stored:,} deliveries received with {len(arriving):,} jobs, each in one transaction")

    def _kill_one(self) -> int:
        """Kill the worker that is in the middle of the job that does not end by itself."""
        holder = select(Job.claimed_by).join(Delivery, Delivery.id == Job.dedup_key).where(Delivery.role == Role.HOLD)
        self._wait(lambda _: self._ask(holder) is not None)
        victim = self._ask(holder)
        held = self._ask(select(func.count()).select_from(Job).where(Job.claimed_by == victim))
        killed = self.fleet.kill(victim)
        self.audience.say(f"worker {victim} killed (SIGKILL) in the middle of {held} jobs; their leases must run out")
        return int(killed and held > 0)

    def _ask(self, question: Select[Any]) -> Any:
        with Session(self.engine) as session:
            return session.scalar(question)

    def _wait(self, ready: Callable[[Progress], bool]) -> None:
        pause, moved_at, last = threading.Event(), time.monotonic(), None
        while not ready(progress := _look(self.engine)):
            self.check()
            self.fleet.check()
            self.audience.show(progress)
            if progress != last:
                moved_at, last = time.monotonic(), progress
            if time.monotonic() - moved_at > _LONGEST_STANDSTILL:
                msg = f"nothing has moved for {_LONGEST_STANDSTILL:g} s; the queue stands at {progress}"
                raise Problem(msg)
            pause.wait(_LOOK_INTERVAL)


def _look(engine: Engine) -> Progress:
    live = {name: func.count().filter(Job.status == State(name)) for name in ("queued", "claimed", "scheduled")}
    tables = {"effects": RepositoryEvent, "dead": DeadLetter, "deliveries": Delivery}
    rows = {name: select(func.count()).select_from(model).scalar_subquery() for name, model in tables.items()}
    columns = [value.label(name) for name, value in {**live, **rows}.items()]
    with Session(engine) as session:
        return Progress(**session.execute(select(*columns)).mappings().one())
