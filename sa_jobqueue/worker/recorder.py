"""Writing down how runs end, once for each run, in a fresh transaction after the handler's own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sa_jobqueue.errors import LeaseLost
from sa_jobqueue.observe import Event, LeaseWasLost, Outage, RunEnded
from sa_jobqueue.states import Outcome
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.tally import Tally
from sa_jobqueue.worker.verdict import Ending, Verdict, is_infrastructure, judge

__all__ = ["Recorder"]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Used by handler threads, and by the main loop for the runs that it gives up.

    ``ended`` is told of every run with its outcome, None if nothing could be recorded.
    """

    control: Control
    tally: Tally
    emit: Callable[[Event], None]
    ended: Callable[[Run, Outcome | None], None]
    give_up: threading.Event

    def conclude(self, run: Run, error: BaseException | None) -> None:
        """Record the end of a run, unless somebody else has."""
        if not run.finish():
            return
        seconds = time.monotonic() - run.started
        verdict = judge(error, run.job, run.task.backoff, run.condemned)
        outcome = None
        try:
            outcome = self._record(run, verdict, seconds)
        finally:
            self.ended(run, outcome)

    def _record(self, run: Run, verdict: Verdict, seconds: float) -> Outcome | None:
        try:
            outcome = self._write(run, verdict)
        except LeaseLost:
            outcome = Outcome.DONE if _unanswered(verdict) and self.control.committed(run.job) else None
        except Exception as error:
            if not is_infrastructure(error):
                raise
            self.emit(Outage(self.control.worker, error))
            return None
        if outcome is None:
            self.emit(LeaseWasLost(self.control.worker, run.job, seconds))
            return None
        self.tally.ran(run.job, outcome, seconds)
        delay = verdict.delay if outcome in {Outcome.RETRIED, Outcome.SNOOZED} else None
        self.emit(RunEnded(self.control.worker, run.job, outcome, seconds, verdict.error, delay))
        return outcome

    def _write(self, run: Run, verdict: Verdict) -> Outcome | None:
        if verdict.ending is Ending.DONE:
            return Outcome.DUPLICATE if run.job.duplicate else Outcome.DONE
        if verdict.ending is Ending.LOST:
            return None
        within = run.task.visibility_timeout
        return self.control.record(run.job, verdict, give_up=self.give_up, within=within)


def _unanswered(verdict: Verdict) -> bool:
    """True if the connection broke, perhaps while the COMMIT was on its way."""
    return verdict.error is not None and is_infrastructure(verdict.error)
