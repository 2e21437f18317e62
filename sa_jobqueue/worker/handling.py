"""One handler in one transaction of its own session: prepare, call, acknowledge last, commit.

The handler's transaction touches the job's row only in its last statement, so that the heartbeat is never blocked by
the job that it keeps alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session

from sa_jobqueue.fence import fence_of
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks import running
from sa_jobqueue.worker.run import Run

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import SessionTransaction

__all__ = ["Handling"]

_BEGIN = (
    "SELECT pg_backend_pid(), CASE current_setting('idle_in_transaction_session_timeout') WHEN '0' "
    "THEN set_config('idle_in_transaction_session_timeout', %s, true) END"
)
"""Learn the server process, so that the run can be ended from outside; bound how long a hung one keeps its locks."""


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

    def perform(self, run: Run) -> None:
        """Run a handler to its commit; whatever it raises comes out after its transaction was rolled back."""
        session: Session = self.sessions()
        try:
            run.task.check(run.job.args)
            self._prepare(session, run)
            if not run.job.duplicate:
                with running(run.job):
                    run.task.function(session, **run.job.args)
            self._acknowledge(session, run)
            session.commit()
        finally:
            run.detach()
            session.close()
            if hasattr(self.sessions, "remove"):
                self.sessions.remove()

    async def perform_async(self, run: Run) -> None:
        """:meth:`perform` for a coroutine function and an ``AsyncSession``."""
        session: AsyncSession = self.async_sessions()
        try:
            run.task.check(run.job.args)
            self._prepare(session.sync_session, run)
            if not run.job.duplicate:
                with running(run.job):
                    await run.task.function(session, **run.job.args)
            await session.run_sync(lambda sync: self._acknowledge(sync, run))
            await session.commit()
        finally:
            run.detach()
            await session.close()

    def _prepare(self, session: Session, run: Run) -> None:
        fence_of(session).expected = {run.job.id}
        home = getattr(session.get_bind(mapper=self.models.job), "engine", None)

        def after_begin(_session: Session, transaction: SessionTransaction, connection: Connection) -> None:
            if transaction.nested or home is None or connection.engine.pool is not home.pool:
                return
            milliseconds = str(int(self.idle_timeout * 1000))
            run.attach(connection.exec_driver_sql(_BEGIN, (milliseconds,)).scalar_one())

        def after_end(session: Session) -> None:
            if not session.in_nested_transaction():
                run.detach()

        event.listen(session, "after_begin", after_begin)
        event.listen(session, "after_commit", after_end)
        event.listen(session, "after_rollback", after_end)

    def _acknowledge(self, session: Session, run: Run) -> None:
        """Flush first: the ack is the last statement before the commit. A handler may have settled the job itself."""
        if run.job.id in fence_of(session).settled:
            return
        jobs = JobSession(session, models=self.models, natural_keys_only=self.natural_keys_only, job_log=self.job_log)
        session.flush()
        if run.job.duplicate:
            jobs.suppress(run.job)
        else:
            jobs.ack(run.job)
