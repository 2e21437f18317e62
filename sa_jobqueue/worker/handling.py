"""One handler in one transaction of its own session: prepare, call, acknowledge last, commit.

The handler's transaction touches the job's row only in its last statement, so that the heartbeat is never blocked by
the job that it keeps alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from sa_jobqueue.errors import CommitRefused
from sa_jobqueue.fence import fence_of
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks import running
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.watch import FirstErrors, Watch

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

__all__ = ["Handling"]

_CLOSED = (
    "the handler closed its session, which undid what it had changed. Leave the session open: the worker commits and "
    "closes it."
)


@dataclass(frozen=True, slots=True)
class Handling:
    """How handlers are run, and what makes their sessions.

    ``idle_timeout`` (seconds) is the ``idle_in_transaction_session_timeout`` of their transactions, unless the server,
    the database or the role sets one.
    """

    sessions: Any
    async_sessions: Any
    models: Models
    natural_keys_only: bool
    job_log: bool
    idle_timeout: float
    errors: FirstErrors = field(default_factory=FirstErrors)

    def perform(self, run: Run) -> None:
        """Run a handler to its commit; whatever it raises comes out after its transaction was rolled back."""
        session: Session = self.sessions()
        try:
            watch = self._watch(session, run)
            run.task.check(run.job.args)
            if not run.job.duplicate:
                with running(run.job):
                    run.task.function(session, **run.job.args)
            self._complete(session, run, watch)
        finally:
            run.detach()
            session.close()
            if hasattr(self.sessions, "remove"):
                self.sessions.remove()

    async def perform_async(self, run: Run) -> None:
        """:meth:`perform` for a coroutine function and an ``AsyncSession``."""
        session: AsyncSession = self.async_sessions()
        # Not close() in a finally: the session's own exit is shielded from a cancellation that comes meanwhile.
        async with session:
            try:
                watch = self._watch(session.sync_session, run)
                run.task.check(run.job.args)
                if not run.job.duplicate:
                    with running(run.job):
                        await run.task.function(session, **run.job.args)
                await session.run_sync(self._complete, run, watch)
            finally:
                run.detach()

    def _watch(self, session: Session, run: Run) -> Watch:
        fence_of(session).expected = {run.job.id}
        home = session.get_bind(mapper=self.models.job).engine
        watch = Watch(run, home, int(self.idle_timeout * 1000), self.errors)
        watch.follow(session)
        return watch

    def _complete(self, session: Session, run: Run, watch: Watch) -> None:
        """Acknowledge, unless the handler has done so by itself, and commit.

        If it has even committed by itself, this fails, but the run is known to be done.
        """
        if watch.closed:
            raise CommitRefused([run.job.id], _CLOSED)
        if run.job.id not in fence_of(session).settled:
            self._acknowledge(session, run)
        session.commit()

    def _acknowledge(self, session: Session, run: Run) -> None:
        """Flush first: the ack is the last statement before the commit."""
        jobs = JobSession(session, models=self.models, natural_keys_only=self.natural_keys_only, job_log=self.job_log)
        session.flush()
        run.settling = True
        if run.job.duplicate:
            jobs.suppress(run.job)
        else:
            jobs.ack(run.job)
