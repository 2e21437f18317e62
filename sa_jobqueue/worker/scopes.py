"""What the handlers of a load work in, a session or a connection, and how their jobs are acknowledged there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sa_jobqueue.errors import NoSuchEffect, SnoozeJob
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.statements import settle
from sa_jobqueue.worker.run import Run

if TYPE_CHECKING:
    from sqlalchemy import Engine, Executable
    from sqlalchemy.orm import Session

    from sa_jobqueue.tasks import Task
    from sa_jobqueue.values import ClaimedJob
    from sa_jobqueue.worker.hand import Hand
    from sa_jobqueue.worker.watch import Watch

__all__ = ["Books", "Scope", "Source", "Sources", "alone"]


class Scope(Protocol):
    """One transaction of handlers, or several if they roll back."""

    watch: Watch
    what: ClassVar[str]
    """The word for what the handlers are given."""

    @property
    def closed(self) -> bool:
        """True if a handler has closed what it was given, and so undone what had been done there."""

    @property
    def over(self) -> bool:
        """True if what was given cannot be used any more."""

    def keep(self) -> None:
        """In a group, let what a handler has changed not depend on what the next one does."""

    def settle(self, runs: Sequence[Run]) -> None:
        """Acknowledge, at the latest by the commit, what the handlers have not acknowledged by themselves."""

    def commit(self) -> None:
        """Commit what the handlers did."""


class Source(Protocol):
    """Makes what handlers are given."""

    @property
    def home(self) -> Engine:
        """The engine of the jobs table."""

    def open(self, hand: Hand) -> Any:
        """A session or a connection, for a function; ``hand`` is that of the thread, and may hold one."""

    async def aopen(self, hand: Hand) -> Any:
        """The same for a coroutine function, to be awaited."""

    def scope(self, given: Any, watch: Watch, books: Books) -> Scope:
        """What has been opened, followed by ``watch``, and unable to commit before its jobs are acknowledged."""

    async def ascope(self, given: Any, watch: Watch, books: Books) -> Scope:
        """The same for what has been opened for a coroutine function."""

    def forget(self) -> None:
        """What has been opened is closed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Those of the application's sync, or async, handlers."""

    sessions: Source
    connections: Source

    def of(self, task: Task[Any, Any]) -> Source:
        """The one for the handlers of a task."""
        return self.connections if task.core else self.sessions


@dataclass(frozen=True)
class Books:
    """Where it is written down that a job is done, and what of it."""

    models: Models
    natural_keys_only: bool
    job_log: bool

    @cached_property
    def last_word(self) -> Executable:
        """The ack of a single job that may go with its COMMIT."""
        return settle.ack_or_error(self.models, natural_keys_only=self.natural_keys_only, log=self.job_log)

    def write(self, session: Session, runs: Sequence[Run]) -> None:
        """Acknowledge the jobs of these runs by statements of their own."""
        jobs = JobSession(session, models=self.models, natural_keys_only=self.natural_keys_only, job_log=self.job_log)
        if len(runs) > 1:
            jobs.ack_many([run.job for run in runs])
            return
        for run in runs:
            settle_one = _suppress if run.job.duplicate else JobSession.ack
            settle_one(jobs, run.job)


def alone(runs: Sequence[Run]) -> ClaimedJob | None:
    """The job of a single run that has an effect."""
    return runs[0].job if len(runs) == 1 and not runs[0].job.duplicate else None


def _suppress(jobs: JobSession, job: ClaimedJob) -> None:
    """If a prune has taken the effect away since the claim, the job comes back at once, and is no duplicate then."""
    try:
        jobs.suppress(job)
    except NoSuchEffect as no_effect:
        raise SnoozeJob(0) from no_effect
