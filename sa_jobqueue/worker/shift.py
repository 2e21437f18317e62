"""One shift of a worker: the loop between its start and its stop.

Everything that happens elsewhere (a run ended, a signal came) arrives as a function in the inbox and is done here, on
the loop's own thread; so the machine needs no lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil

from sa_jobqueue.observe import Event, SweepDone, WorkerStopping
from sa_jobqueue.states import Outcome
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.held import Held
from sa_jobqueue.worker.inbox import Inbox
from sa_jobqueue.worker.lanes import Lane, Lanes
from sa_jobqueue.worker.machine import Machine, few_sizes
from sa_jobqueue.worker.outages import PAUSE_BEFORE_SWEEP, Outages, passing_over_outages
from sa_jobqueue.worker.run import Load, Run
from sa_jobqueue.worker.tally import Tally
from sa_jobqueue.worker.verdict import is_outage

__all__ = ["Shift"]

_TALLY_INTERVAL = 2.0
_LONGEST_WAIT = 3_600.0
_MEASURED = 64
"""Of the runs that have ended since the last look, how many tell the machine how long they took."""


class Shift:
    """Looks at its lanes, claims for them, and hands what it has claimed to ``held``.

    ``open_up`` is called before anything else, again after an outage, until it returns: a worker may be started before
    its database is.
    """

    def __init__(
        self,
        tasks: TaskRegistry,
        lanes: Sequence[Lane],
        machine: Machine,
        control: Control,
        keeper_control: Control,
        emit: Callable[[Event], None],
        open_up: Callable[[], None],
    ) -> None:
        self._tasks, self._machine, self._control = tasks, machine, control
        self._lanes = Lanes(lanes)
        self._emit, self._open_up = emit, open_up
        self._opened = False
        self._when_open: list[Callable[[], None]] = []
        self._inbox = Inbox()
        self._waiting_for: set[int] = set()
        self._outages = Outages(control.worker, emit)
        self._tally_at = self._sweep_from = 0.0
        self._tally = Tally()
        slots = machine.concurrency
        self.held = Held(tasks, slots, control, keeper_control, self._inbox, self._tally, emit, self._let_go)

    def work(self, start: Callable[[Load], None]) -> None:
        """Loop until the machine is done; then nothing is claimed by this worker any more."""
        self.held.open(start)
        try:
            while not self._machine.done():
                self._step()
                self._take(self._wait(time.monotonic()))
        finally:
            try:
                self._end_all()
                with passing_over_outages():
                    self._tally.write(self._control.add)
            finally:
                self.held.close()

    def stop(self) -> None:
        """Ask for a stop, from any thread or signal handler; a second time: at once."""
        self._inbox.put(self._on_stop)

    def when_open(self, act: Callable[[], None]) -> None:
        """Call ``act`` once the database has been found fit for work."""
        self._when_open.append(act)

    def hear(self, mark: str | None) -> None:
        """A hint has come of the queue with that mark, or (None) of any; from any thread."""
        self._inbox.put(lambda: self._lanes.hinted(mark, time.monotonic()))

    def rely_on_hints(self, *, healthy: bool) -> None:
        """Whether hints arrive; from any thread."""
        self._machine.listening = healthy

    def _on_stop(self) -> None:
        self._machine.stop(time.monotonic())
        self.held.give_back()
        self._emit(WorkerStopping(self._control.worker, self._machine.held))

    def _wait(self, now: float) -> float:
        return max(min(self._machine.wait(now), self._lanes.stir_in(now), _LONGEST_WAIT), 0.0)

    def _step(self) -> None:
        now = time.monotonic()
        if self._machine.out_of_grace(now):
            self._end_all()
            return
        try:
            self._open()
            self._look(now)
            self._take(0)  # a stop that was asked for during the look must come before the claim
            self._claim()
            self.held.give_back(claimed_before=self._machine.in_line_too_long(now))
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
            for act in self._when_open:
                act()

    def _take(self, timeout: float) -> None:
        """Wait for something to happen, and let go of what has ended."""
        self._inbox.take(timeout)
        self.held.turns.heard()
        self.held.collect()

    def _end_all(self) -> None:
        self.held.end_all()
        self._take(0)

    def _look(self, now: float) -> None:
        """Look at all queues, and sweep those in which something is due."""
        if not self._machine.looks(now):
            return
        due_in = None
        sights = self._control.see(self._lanes.queues)
        self._recover(now)
        for sight in sights:
            lane = self._lanes[sight.queue]
            lane.ready = lane.ready or sight.ready
            rest = None if sight.due_in is None else max(sight.due_in, self._sweep_from - now)
            if rest is not None and rest <= 0:
                self._sweep(lane)
            elif rest is not None:
                due_in = min(rest, due_in or rest)
        self._machine.looked(time.monotonic(), found=self._lanes.ready, due_in=due_in)
        if now >= self._sweep_from:
            self._outages.answered()  # an outage makes a look due, so every outage ends here

    def _recover(self, now: float) -> None:
        """At the first answer after an outage, let those who have something to record be faster than the sweep.

        And give back what a claim has taken whose answer was lost: nobody else knows of it before its lease is over.
        """
        if self._outages.unanswered:
            for queue in self._lanes.queues:
                self._control.release_unanswered(queue, self.held.ids())
            self._outages.heard()
            self.held.database_answers()
            self._sweep_from = now + PAUSE_BEFORE_SWEEP

    def _sweep(self, lane: Lane) -> None:
        swept = self._control.sweep(lane.queue)
        if swept.total:
            lane.ready = True
            self._emit(SweepDone(self._control.worker, lane.queue, swept))

    def _claim(self) -> None:
        """Fill the free slots from the queues that may have something; each gets its share, a different one first."""
        while wanting := self._wanting():
            for lane in wanting:
                now = time.monotonic()
                limit = few_sizes(ceil(self._room(now, lane) / len(wanting)))
                if limit:
                    jobs = self._control.claim(lane.queue, limit, lane.leases, lane.begins(now))
                    lane.came(jobs, limit)
                    self._machine.claimed(len(jobs))
                    self.held.begin(jobs)
            self._take(0)
        if not self._lanes.ready:
            self._machine.ran_dry(time.monotonic())
        self.held.turns.low_water = self._machine.low_water

    def _wanting(self) -> list[Lane]:
        now = time.monotonic()
        self._lanes.stir(now)
        return [lane for lane in self._lanes.in_turn() if lane.ready and self._room(now, lane)]

    def _room(self, now: float, lane: Lane) -> int:
        return self._machine.room(now, lane.breadth, in_line=lane.held > 0)

    def _ask_if_empty(self, now: float) -> None:
        if self._machine.asks_if_empty(now):
            names = [task.name for task in self._tasks]
            self._machine.drained = not self._control.outstanding(self._lanes.queues, names, self._waiting_for)

    def _let_go(self, over: list[tuple[Run, Outcome | None]]) -> None:
        self._machine.let_go(len(over))
        for run, outcome in over:
            self._lanes[run.job.queue].held -= 1
            self._note(run, outcome)
        for run, _ in over[-_MEASURED:]:
            if (seconds := run.slot_seconds) is not None:
                self._machine.took(seconds)

    def _note(self, run: Run, outcome: Outcome | None) -> None:
        """A drain waits for the jobs that it has caused to run again."""
        if outcome is Outcome.DONE and not self._waiting_for:
            return
        if self._machine.drain and outcome in {Outcome.RETRIED, Outcome.SNOOZED}:
            self._waiting_for.add(run.job.id)
        else:
            self._waiting_for.discard(run.job.id)

    def _write_tally(self, now: float) -> None:
        if now >= self._tally_at:
            self._tally_at = now + _TALLY_INTERVAL
            self._tally.write(self._control.add)
