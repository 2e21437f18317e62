"""Writing down how runs end, once for each run, in a fresh transaction after the handler's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sa_jobqueue.errors import LeaseLost
from sa_jobqueue.observe import Event, LeaseWasLost, RunEnded, RunStarted, RunUnrecorded
from sa_jobqueue.states import Outcome
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.outages import Patience
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.tally import Tally
from sa_jobqueue.worker.verdict import Ending, Verdict, is_infrastructure, judge, root_cause

__all__ = ["Recorder"]


_DONE = Verdict(Ending.DONE)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Used by handler threads, and by the main loop for the runs that it gives up.

    ``ended`` is told of every run with its outcome, None if nothing could be recorded.
    """

    control: Control
    tally: Tally
    emit: Callable[[Event], None]
    ended: Callable[[Run, Outcome | None], None]
    patience: Patience

    def conclude(self, run: Run, error: BaseException | None) -> None:
        """Record the end of a run, unless somebody else has; through an outage, however long.

        A record that comes after the end of the lease is in time as long as nobody has taken the job: the token tells.
        """
        if error is None and run.finish():
            self._done(run)
        else:
            self._conclude(run, error, self.patience)

    def begin(self, run: Run) -> bool:
        """The turn of a run has come; False if it is not wanted any more."""
        first = not run.announced
        wanted = run.begin()
        if first and wanted:
            run.announced = True
            self.emit(RunStarted(self.control.worker, run.job))
        return wanted

    def give_up_on(self, run: Run) -> None:
        """Record the end of a run whose handler hangs. The main loop cannot wait: one try, or the lease runs out."""
        no_patience = Patience()
        no_patience.exhaust()
        self._conclude(run, TimeoutError("the handler did not end when it was asked to"), no_patience)

    def give_back(self, runs: Sequence[Run]) -> None:
        """Release jobs whose turn has not come, by one statement; if that fails, their leases run out."""
        mine = [run for run in runs if run.finish()]
        try:
            released = self.control.release([run.job for run in mine])
        except Exception as failure:  # noqa: BLE001 - as in _conclude
            for run in mine:
                self.emit(RunUnrecorded(self.control.worker, run.job, 0.0, failure))
                self.ended(run, None)
            return
        for run in mine:
            outcome = Outcome.RELEASED if run.job.id in released else None
            self._tell(run, Verdict(Ending.RELEASE), outcome, 0.0)
            self.ended(run, outcome)

    def _done(self, run: Run) -> None:
        """A run without an error has committed its own acknowledgement: there is nothing to record."""
        outcome = Outcome.DUPLICATE if run.job.duplicate else Outcome.DONE
        try:
            self._tell(run, _DONE, outcome, run.run_time)
        finally:
            self.ended(run, outcome)

    def _conclude(self, run: Run, error: BaseException | None, patience: Patience) -> None:
        if not run.finish():
            return
        seconds = run.run_time
        outcome = None
        try:
            verdict = self._judge(run, error)
            outcome = patience.through_outages(lambda: self._write(run, verdict))
            self._tell(run, verdict, outcome, seconds)
        except Exception as failure:  # noqa: BLE001 - a run that cannot be recorded must not take its thread along
            self.emit(RunUnrecorded(self.control.worker, run.job, seconds, failure))
        finally:
            self.ended(run, outcome)

    def _judge(self, run: Run, error: BaseException | None) -> Verdict:
        """What is committed is done, whatever happened on the way out."""
        cause = None if run.committed else root_cause(error, run.first_error)
        return judge(cause, run.job, run.task.backoff, run.condemned)

    def _write(self, run: Run, verdict: Verdict) -> Outcome | None:
        if verdict.ending is Ending.DONE:
            return Outcome.DUPLICATE if run.job.duplicate else Outcome.DONE
        if verdict.ending is Ending.LOST:
            return None
        try:
            return self.control.record(run.job, verdict)
        except LeaseLost:
            return Outcome.DONE if _in_doubt(run, verdict) and self.control.committed(run.job) else None

    def _tell(self, run: Run, verdict: Verdict, outcome: Outcome | None, seconds: float) -> None:
        if outcome is None:
            self.emit(LeaseWasLost(self.control.worker, run.job, seconds))
            return
        self.tally.ran(run.job, outcome, seconds)
        delay = verdict.delay if outcome in {Outcome.RETRIED, Outcome.SNOOZED} else None
        self.emit(RunEnded(self.control.worker, run.job, outcome, seconds, verdict.error, delay))


def _in_doubt(run: Run, verdict: Verdict) -> bool:
    """True if the connection broke, or the run was ended from outside, perhaps while its COMMIT was on its way."""
    broken = run.condemned is not None or (verdict.error is not None and is_infrastructure(verdict.error))
    return run.committing and broken
