"""What a drain has done: plain values, one for each run."""

from __future__ import annotations

from dataclasses import dataclass

from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob, Swept

__all__ = ["DrainReport", "DrainedRun"]


@dataclass(frozen=True, slots=True)
class DrainedRun:
    """One run of one job.

    ``outcome`` is what a worker would have recorded (done, duplicate, retried, snoozed, dead), or None if the lease was
    lost: the handler, or what it called, took the job away from itself.
    """

    job: ClaimedJob
    outcome: Outcome | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DrainReport:
    """All runs of one drain, in their order.

    ``swept`` counts the due and expired jobs that were brought back first; ``unknown`` names the tasks of queued jobs
    that the registry does not have, which is most often a module that the test forgot to import.
    """

    runs: tuple[DrainedRun, ...]
    swept: Swept
    unknown: tuple[str, ...]

    @property
    def done(self) -> list[ClaimedJob]:
        """Jobs whose handler ran to its end."""
        return self._with(Outcome.DONE)

    @property
    def duplicates(self) -> list[ClaimedJob]:
        """Jobs that were acknowledged without a run, because the effect of their dedup key exists."""
        return self._with(Outcome.DUPLICATE)

    @property
    def failed(self) -> list[ClaimedJob]:
        """Jobs that failed and are scheduled again; with ``retries=True`` one job may be here several times."""
        return self._with(Outcome.RETRIED)

    @property
    def snoozed(self) -> list[ClaimedJob]:
        """Jobs that asked to be run later, and those that an error of the database gave back."""
        return self._with(Outcome.SNOOZED)

    @property
    def dead(self) -> list[ClaimedJob]:
        """Jobs that are dead letters by now: their last attempt failed, or they were rejected."""
        return self._with(Outcome.DEAD)

    @property
    def errors(self) -> list[BaseException]:
        """What the handlers raised, in order."""
        return [run.error for run in self.runs if run.error is not None]

    def check(self) -> DrainReport:
        """Raise what the handlers raised, as one ``BaseExceptionGroup``; else answer with this report.

        Raises:
            BaseExceptionGroup: if any run ended with an error; each keeps its own traceback.
        """
        if self.errors:
            msg = "handlers failed in this drain"
            raise BaseExceptionGroup(msg, self.errors)
        return self

    def _with(self, outcome: Outcome) -> list[ClaimedJob]:
        return [run.job for run in self.runs if run.outcome is outcome]
