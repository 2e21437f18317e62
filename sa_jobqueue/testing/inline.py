"""The worker's steps (sweep, claim, acknowledge, record) one after another in one session, with no waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import ColumnElement, select, update

from sa_jobqueue.errors import JobQueueError
from sa_jobqueue.fence import fence_of
from sa_jobqueue.models import Models
from sa_jobqueue.session import JobSession
from sa_jobqueue.statements.literals import now
from sa_jobqueue.states import Outcome, State
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.testing.attempt import Attempt
from sa_jobqueue.testing.report import DrainedRun, DrainReport
from sa_jobqueue.values import ClaimedJob, Swept
from sa_jobqueue.worker.control import settle_verdict
from sa_jobqueue.worker.verdict import Ending, judge

__all__ = ["Inline"]

_NAME = "drain"


class Inline:
    """One drain: :meth:`begin` an attempt, let somebody call its handler, :meth:`end` it, until there is none."""

    def __init__(
        self,
        jobs: JobSession,
        tasks: TaskRegistry,
        lanes: Mapping[str, Mapping[str, float]],
        models: Models,
        *,
        retries: bool,
        scheduled: bool,
        max_runs: int,
    ) -> None:
        self._jobs, self._tasks, self._lanes = jobs, tasks, lanes
        self._session, self._job = jobs.session, models.table(models.job)
        self._connects_as = {"mapper": models.job}
        self._retries, self._scheduled, self._max_runs = retries, scheduled, max_runs
        self._runs: list[DrainedRun] = []
        self._swept = Swept()

    def begin(self) -> Attempt | None:
        """Claim the next job, and open the savepoint that its handler runs in; None if nothing is left to run."""
        self._session.flush()
        job = self._claim()
        if job is None and self._scheduled and self._make_due():
            job = self._claim()
        if job is None:
            return None
        if len(self._runs) == self._max_runs:
            msg = f"the drain gave up after {self._max_runs} runs; next is task {job.task!r}. Does it enqueue itself?"
            raise JobQueueError(msg)
        return Attempt(self._session, job, self._tasks[job.task], self._connects_as)

    def end(self, attempt: Attempt, error: BaseException | None) -> None:
        """Acknowledge the job, or record its failure."""
        if error is None:
            error = self._acknowledge(attempt)
        if error is None:
            outcome: Outcome | None = Outcome.DUPLICATE if attempt.job.duplicate else Outcome.DONE
        else:
            attempt.undo(error)
            outcome = self._record(attempt, error)
        self._runs.append(DrainedRun(attempt.job, outcome, error))

    def report(self) -> DrainReport:
        """What has happened so far."""
        known = [task.name for task in self._tasks]
        there = self._job.c.queue.in_(self._lanes), self._job.c.status == State.QUEUED.value
        names = select(self._job.c.task).distinct().where(*there, self._job.c.task.not_in(known))
        connection = self._session.connection(bind_arguments=self._connects_as)
        unknown = tuple(sorted(connection.scalars(names)))
        return DrainReport(tuple(self._runs), self._swept, unknown)

    def _claim(self) -> ClaimedJob | None:
        for queue, leases in self._lanes.items():
            self._swept += self._jobs.sweep(queues=[queue])
            for job in self._jobs.claim_ready(queue, limit=1, leases=leases, worker=_NAME):
                return job
        return None

    def _make_due(self) -> bool:
        """Whether there was a job of ours whose time could be moved up."""
        early = update(self._job).where(*self._ours(), self._job.c.status == State.SCHEDULED.value)
        connection = self._session.connection(bind_arguments=self._connects_as)
        return connection.execute(early.values(visible_at=now())).rowcount > 0

    def _ours(self) -> tuple[ColumnElement[bool], ...]:
        names = [task.name for task in self._tasks]
        return self._job.c.queue.in_(self._lanes), self._job.c.task.in_(names)

    def _acknowledge(self, attempt: Attempt) -> BaseException | None:
        """What went wrong with it; a handler may have settled the job itself."""
        try:
            self._session.flush()
            if attempt.job.id not in fence_of(self._session).settled:
                settle = self._jobs.suppress if attempt.job.duplicate else self._jobs.ack
                settle(attempt.job)
            attempt.release()
        except Exception as error:  # noqa: BLE001 (whatever the flush or a commit hook raises, the report has it)
            return error
        return None

    def _record(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        verdict = judge(error, attempt.job, attempt.task.backoff)
        if verdict.ending is Ending.LOST:
            return None
        if self._retries and verdict.ending is Ending.FAIL:
            verdict = replace(verdict, delay=timedelta(0))
        return settle_verdict(self._jobs, attempt.job, verdict)
