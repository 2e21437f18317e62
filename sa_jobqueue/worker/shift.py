"""One shift of a worker: the loop between its start and its stop.

Everything that happens elsewhere (a run ended, a signal came) arrives as a function in the inbox and is done here, on
the loop's own thread; so the machine needs no lock. ``SimpleQueue.put`` is safe inside a signal handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue

from sa_jobqueue.observe import Event, RunStarted, SweepDone, WorkerStopping
from sa_jobqueue.states import Outcome
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.values import ClaimedJob
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.keeper import Keeper
from sa_jobqueue.worker.machine import Machine
from sa_jobqueue.worker.outages import PAUSE_BEFORE_SWEEP, Outages, Patience, passing_over_outages
from sa_jobqueue.worker.recorder import Recorder
from sa_jobqueue.worker.run import Condemned, Run
from sa_jobqueue.worker.tally import Tally
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["Shift"]

_TALLY_INTERVAL = 2.0


class Shift:
    """Claims for the queues in ``lanes`` (queue to tasks and their visibility timeouts), starts runs, ends them.

    ``open_up`` is called before anything else, again after an outage, until it returns: a worker may be started before
    its database is. Handlers that come back are handed to ``conclude``, on the thread that they ran on.
    """

    def __init__(
        self,
        tasks: TaskRegistry,
        lanes: Mapping[str, Mapping[str, float]],
        machine: Machine,
        control: Control,
        keeper_control: Control,
        emit: Callable[[Event], None],
        open_up: Callable[[], None],
    ) -> None:
        self.abandoned = 0
        self._tasks, self._lanes, self._machine, self._control = tasks, lanes, machine, control
        self._emit, self._open_up = emit, open_up
        self._opened = False
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._runs: set[Run] = set()
        self._waiting_for: set[int] = set()
        self._outages = Outages(control.worker, emit)
        self._tally_at, self._turn = 0.0, 0
        self._patience = Patience()
        self._tally = Tally()
        self._recorder = Recorder(control, self._tally, emit, self._ended, self._patience)
        self.conclude = self._recorder.conclude
        shortest = min(task.visibility_timeout for task in tasks)
        self._keeper = Keeper(keeper_control, shortest, control.line.within, emit, self._abandon, self._fatal)

    def work(self, start: Callable[[Run], None]) -> None:
        """Loop until the machine is done; then nothing is claimed by this worker any more."""
        self._keeper.start()
        try:
            while not self._machine.done():
                self._step(start)
                self._take(self._machine.wait(time.monotonic()))
        finally:
            try:
                self._end_all()
                with passing_over_outages():
                    self._tally.write(self._control.add)
            finally:
                self._keeper.close()

    def stop(self) -> None:
        """Ask for a stop, from any thread or signal handler; a second time: at once."""
        self._inbox.put(self._on_stop)

    def _on_stop(self) -> None:
        self._machine.stop(time.monotonic())
        self._emit(WorkerStopping(self._control.worker, self._machine.running))

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        self._inbox.put(lambda: self._on_ended(run, outcome))

    def _abandon(self, run: Run) -> None:
        self._inbox.put(lambda: self._give_up_on(run))

    def _fatal(self, error: Exception) -> None:
        def fail() -> None:
            raise error

        self._inbox.put(fail)

    def _step(self, start: Callable[[Run], None]) -> None:
        now = time.monotonic()
        if self._machine.out_of_grace(now):
            self._end_all()
            return
        try:
            self._open()
            self._recover(now)
            self._sweep(now)
            self._take(0)  # a stop that was asked for during the sweep must come before the claim
            self._claim(now, start)
            self._ask_if_empty(now)
            self._write_tally(now)
        except Exception as error:
            if not is_outage(error):
                raise
            self._machine.outage(self._outages.failed(error), time.monotonic())

    def _open(self) -> None:
        if not self._opened:
            self._open_up()
            self._opened = True

    def _recover(self, now: float) -> None:
        """At the first answer after an outage, let those who have something to record be faster than the sweep."""
        if self._outages.unanswered and self._machine.wants_sweep(now):
            self._control.ask()
            self._outages.heard()
            self._patience.renew()
            self._machine.recovered(PAUSE_BEFORE_SWEEP, now)

    def _take(self, timeout: float) -> None:
        """Wait for one thing to happen, then take everything else that has."""
        try:
            self._inbox.get(timeout=timeout)()
            while True:
                self._inbox.get_nowait()()
        except Empty:
            return

    def _sweep(self, now: float) -> None:
        if not self._machine.wants_sweep(now):
            return
        moved = 0
        for queue in self._lanes:
            swept = self._control.sweep(queue)
            moved += swept.total
            if swept.total:
                self._emit(SweepDone(self._control.worker, queue, swept))
        self._machine.swept(moved, time.monotonic())
        self._outages.answered()  # an outage makes a sweep due, so every outage ends here

    def _claim(self, now: float, start: Callable[[Run], None]) -> None:
        """Ask each queue in turn, a different one first each time, until the free slots are filled."""
        if not self._machine.wants_jobs(now):
            return
        queues = list(self._lanes)
        self._turn += 1
        for queue in queues[self._turn % len(queues) :] + queues[: self._turn % len(queues)]:
            if self._machine.free:
                self._begin(self._control.claim(queue, self._machine.free, self._lanes[queue]), start)
        self._machine.polled(time.monotonic())

    def _begin(self, jobs: list[ClaimedJob], start: Callable[[Run], None]) -> None:
        """Start what was claimed from one queue at once: the claim of the next queue may fail."""
        self._machine.claimed(len(jobs))
        now = time.monotonic()
        runs = [Run(job, self._tasks[job.task], started=now, beaten=now) for job in jobs]
        self._runs.update(runs)
        self._keeper.hold(runs)
        for run in runs:
            self._emit(RunStarted(self._control.worker, run.job))
            start(run)

    def _ask_if_empty(self, now: float) -> None:
        if self._machine.asks_if_empty(now):
            names = [task.name for task in self._tasks]
            self._machine.drained = not self._control.outstanding(list(self._lanes), names, self._waiting_for)

    def _on_ended(self, run: Run, outcome: Outcome | None) -> None:
        if run not in self._runs:
            return
        self._runs.discard(run)
        self._keeper.drop(run)
        self._machine.finished()
        if self._machine.drain and outcome in {Outcome.RETRIED, Outcome.SNOOZED}:
            self._waiting_for.add(run.job.id)
        else:
            self._waiting_for.discard(run.job.id)

    def _give_up_on(self, run: Run) -> None:
        if not run.finished:
            self.abandoned += 1
            self._recorder.give_up_on(run)

    def _end_all(self) -> None:
        """End the runs that are left from outside and give their jobs back."""
        self._patience.exhaust()
        for run in list(self._runs):
            run.condemn(Condemned.STOPPED)
            self._terminate(run)
            self._give_up_on(run)
        self._take(0)

    def _terminate(self, run: Run) -> None:
        try:
            run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
        except Exception as error:
            if not is_outage(error):
                raise
        if run.interrupt is not None:
            run.interrupt()

    def _write_tally(self, now: float) -> None:
        if now >= self._tally_at:
            self._tally_at = now + _TALLY_INTERVAL
            self._tally.write(self._control.add)
