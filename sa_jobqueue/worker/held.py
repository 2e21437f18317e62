"""The jobs that a worker holds: from their claim until they have ended, by their handler or from outside."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from sa_jobqueue.observe import Event
from sa_jobqueue.states import Outcome
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.values import ClaimedJob
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.inbox import Inbox
from sa_jobqueue.worker.keeper import Keeper
from sa_jobqueue.worker.outages import Patience, passing_over_outages
from sa_jobqueue.worker.recorder import Recorder
from sa_jobqueue.worker.run import Condemned, Load, Run
from sa_jobqueue.worker.tally import Tally
from sa_jobqueue.worker.turns import Turns

__all__ = ["Held"]


class Held:
    """Lets runs have their turns, has their leases kept, and ends those that must not go on.

    For the loop's thread alone, but for ``turns``, which says who runs next, and ``recorder``, which takes down how a
    run ended. What the keeper sees comes through the inbox.

    Args:
        tasks: the handlers.
        slots: how many loads run at the same time.
        control: the loop's own transactions.
        keeper_control: those of the keeper.
        inbox: reaches the loop.
        tally: counts what is recorded.
        emit: takes events.
        let_go: told of runs that have ended, with the outcome of each; None if nothing could be recorded.
    """

    def __init__(
        self,
        tasks: TaskRegistry,
        slots: int,
        control: Control,
        keeper_control: Control,
        inbox: Inbox,
        tally: Tally,
        emit: Callable[[Event], None],
        let_go: Callable[[list[tuple[Run, Outcome | None]]], None],
    ) -> None:
        self.abandoned = 0
        self._tasks, self._control, self._inbox, self._let_go = tasks, control, inbox, let_go
        self._runs: set[Run] = set()
        self._over: deque[tuple[Run, Outcome | None]] = deque()
        self._patience = Patience()
        self.turns = Turns(slots, hungry=inbox.wake)
        self.recorder = Recorder(control, tally, emit, self._ended, self._patience)
        shortest = min(task.visibility_timeout for task in tasks)
        self._keeper = Keeper(keeper_control, shortest, control.line.within, emit, self._abandon, inbox.fail)

    def open(self, start: Callable[[Load], None]) -> None:
        """From now on runs are started, and their leases kept."""
        self._start = start
        self._keeper.start()

    def close(self) -> None:
        """Keep no lease any more."""
        self._keeper.close()

    def ids(self) -> list[int]:
        """The jobs."""
        return [run.job.id for run in self._runs]

    def begin(self, jobs: Sequence[ClaimedJob]) -> None:
        """Start what was claimed, or let it wait for its turn."""
        now = time.monotonic()
        runs = [Run(job, self._tasks[job.task], started=now, beaten=now) for job in jobs]
        self._runs.update(runs)
        self._keeper.hold(runs)
        for load in self.turns.add(runs):
            self._start(load)

    def collect(self) -> None:
        """Let go of the runs that have ended."""
        over = []
        while self._over:
            run, outcome = self._over.popleft()
            if run in self._runs:
                over.append((run, outcome))
        runs = [run for run, _ in over]
        self._runs.difference_update(runs)
        self._keeper.drop(runs)
        self._let_go(over)

    def give_back(self, *, claimed_before: float | None = None) -> None:
        """Release runs that have had no turn: those claimed before an instant of the monotonic clock, or all."""
        if waiting := self.turns.withdraw(claimed_before=claimed_before):
            self.recorder.give_back(waiting)
            self.collect()

    def database_answers(self) -> None:
        """After an outage: whoever has something to record need not wait any longer."""
        self._patience.renew()

    def end_all(self) -> None:
        """End the runs that are left from outside and give their jobs back."""
        self._patience.exhaust()
        self.give_back()
        for run in list(self._runs):
            run.condemn(Condemned.STOPPED)
            self._terminate(run)
            self._give_up_on(run)

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        """From any thread."""
        self._over.append((run, outcome))

    def _abandon(self, run: Run) -> None:
        """From the keeper's thread."""
        self._inbox.put(partial(self._give_up_on, run))

    def _give_up_on(self, run: Run) -> None:
        """The handler hangs: record it and those that share its turn as far as that goes, and fill its slot again."""
        load = run.load
        if run.finished or load is None or not load.leave():
            return
        self.abandoned += 1
        for each in load.runs:
            each.condemn(Condemned.STOPPED)
            self.recorder.give_up_on(each)
        if (following := self.turns.next()) is not None:
            self._start(following)

    def _terminate(self, run: Run) -> None:
        with passing_over_outages():
            run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
        if run.interrupt is not None:
            run.interrupt()
