"""The worker as its users see it: settings, checks at the start, signals, and the parts put together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import WorkerMisconfigured
from sa_jobqueue.migrations import check_schema
from sa_jobqueue.observe import Event, WorkerStarted, WorkerStopped, log_event
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.values import to_seconds
from sa_jobqueue.worker import poolers, setup
from sa_jobqueue.worker.connections import connections_of
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.handling import Handling
from sa_jobqueue.worker.lanes import Lane
from sa_jobqueue.worker.line import Line, line
from sa_jobqueue.worker.listener import Ear, Listener
from sa_jobqueue.worker.machine import Machine
from sa_jobqueue.worker.run import Load
from sa_jobqueue.worker.runtimes import Both, ThreadRuntime
from sa_jobqueue.worker.scopes import Books, Sources
from sa_jobqueue.worker.sessions import source_of
from sa_jobqueue.worker.shift import Shift
from sa_jobqueue.worker.signals import stopping_on_signals
from sa_jobqueue.worker.watch import Overheard

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
    from sqlalchemy.orm import Session, scoped_session, sessionmaker

    from sa_jobqueue.models import Models

__all__ = ["Worker"]

logger = logging.getLogger("sa_jobqueue")

_DRAIN_INTERVAL = 0.05
_LEAST_BEAT_TIMEOUT = 2.0
"""Seconds; a server under load may well take one."""


class Worker:
    """Claims jobs under a lease, keeps the lease alive, and runs handlers in the application's own sessions.

    Args:
        tasks: the handlers.
        sessionmaker: makes the sessions of sync handlers; a ``scoped_session`` is removed after each run.
        queues: which queues to serve; by default those of the tasks.
        concurrency: handlers at the same time, sync and async together.
        async_sessionmaker: makes the sessions of async handlers. Its engine belongs to the worker's event loop.
        name: recorded in ``claimed_by``, for people: ownership is the token. No two live workers may share one, since
            after an outage a worker gives back what is claimed in its name without its knowing.
        poll_interval: seconds between polls of an empty queue.
        sweep_interval: seconds between looks for due jobs and expired leases.
        requeue_jitter: seconds over which this worker's sweeps spread jobs whose leases ran out together; never more
            than a quarter of the shortest visibility timeout of its tasks. 0: they are re-queued at once.
        grace: seconds that a graceful stop waits for running handlers before it ends them from outside.
        idle_timeout: ``idle_in_transaction_session_timeout`` in seconds of the handlers' transactions, unless the
            server sets one; it bounds how long a hung worker process keeps its row locks.
        control_timeout: seconds that one of the worker's own short transactions may take, a claim, a sweep or a record;
            one that takes longer is ended and counts as an outage. A heartbeat has a third of its lease.
        natural_keys_only: write dedup rows only for jobs that have a ``dedup_key``.
        job_log: write every run to the job log.
        models: the mapped classes; those of ``tasks``, and no others.
        listen: hear of new jobs by LISTEN, on one more connection; polling goes on all the same. A URL says where to
            listen, if the application's engine goes through a pooler that delivers no notifications.
        subscribers: called with every event, on the thread where it happens; by default events are logged.

    Raises:
        WorkerMisconfigured: if it could not keep its promise with these settings; the message names the remedy.
    """

    def __init__(
        self,
        tasks: TaskRegistry,
        sessionmaker: sessionmaker[Session] | scoped_session[Session] | None = None,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 8,
        async_sessionmaker: async_sessionmaker[AsyncSession] | None = None,
        name: str | None = None,
        poll_interval: timedelta | float = 1.0,
        sweep_interval: timedelta | float = 1.0,
        requeue_jitter: timedelta | float = 1.0,
        grace: timedelta | float = 30.0,
        idle_timeout: timedelta | float = 300.0,
        control_timeout: timedelta | float = 15.0,
        natural_keys_only: bool = False,
        job_log: bool = False,
        models: Models | None = None,
        listen: bool | str | URL = True,
        subscribers: Sequence[Callable[[Event], None]] = (log_event,),
    ) -> None:
        setup.check_tasks(tasks, sync=sessionmaker is not None, asynchronous=async_sessionmaker is not None)
        if concurrency < 1:
            msg = f"concurrency must be at least 1; got {concurrency}"
            raise WorkerMisconfigured(msg)
        self.name = name or setup.default_name()
        self._tasks, self._sessions, self._async_sessions = tasks, sessionmaker, async_sessionmaker
        self._lanes = setup.lanes(tasks, queues)
        self._concurrency = concurrency
        self._poll = to_seconds("poll_interval", poll_interval, least=0.001)
        self._sweep = to_seconds("sweep_interval", sweep_interval, least=0.001)
        self._requeue_jitter = setup.requeue_jitter(to_seconds("requeue_jitter", requeue_jitter), tasks)
        self._grace = to_seconds("grace", grace)
        self._control_timeout = to_seconds("control_timeout", control_timeout, least=0.5)
        self._models = setup.models_of(tasks, models)
        self._job_log = job_log
        self._listen = listen
        self._subscribers = tuple(subscribers)
        self._natural_keys_only = natural_keys_only
        self._idle_timeout = to_seconds("idle_timeout", idle_timeout)
        self._shift: Shift | None = None
        self._stop_early = False
        self._stop_lock = threading.RLock()  # reentrant: stop() may be called by a signal handler, in the main thread

    def run(self, *, until_empty: bool = False, signals: bool = True) -> None:
        """Work until stopped; with ``until_empty``, until nothing is left to do.

        A drain waits for jobs that are queued, due, claimed by anybody, or waiting for a retry that this run caused;
        not for jobs scheduled by others. In the main thread SIGTERM and SIGINT stop gracefully, a second one at once;
        the handlers of the application are put back at the end. ``signals=False`` leaves them alone, for an application
        that calls :meth:`stop` itself.

        Raises:
            WorkerMisconfigured: if a pool is too small; names the number. If prepared statements get lost in a pooler.
                If the engine is in AUTOCOMMIT.
            SchemaMismatch: if the tables are missing or of another release.
        """
        homes = self._homes()
        with (
            poolers.naming_the_pooler(),
            line(homes[0], self._control_timeout) as own,
            line(homes[0], self._beat_timeout()) as keepers,
        ):
            shift = self._new_shift(own, keepers, drain=until_empty)
            overheard = Overheard()
            with (
                self._on_duty(shift, signals=signals),
                overheard.listening(homes),
                self._runtimes(shift, self._handling(shift, overheard)) as start,
                self._hinted(shift, homes[0]),
            ):
                shift.work(start)
        self._emit(WorkerStopped(self.name, shift.held.abandoned))

    def stop(self) -> None:
        """Stop gracefully, from any thread; called again: at once. Before :meth:`run`, its next call ends at once."""
        with self._stop_lock:
            if self._shift is None:
                self._stop_early = True
            else:
                self._shift.stop()

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        """Hand events to one more subscriber from the next :meth:`run` on."""
        self._subscribers = (*self._subscribers, subscriber)

    def forget_connections(self) -> None:
        """In a forked process, before :meth:`run`: empty the pools, but leave their connections to the parent."""
        for home in self._homes():
            home.dispose(close=False)

    def _homes(self) -> list[Engine]:
        """The application's engines, with pools that are large enough, and transactions."""
        factories = (factory for factory in (self._sessions, self._async_sessions) if factory is not None)
        homes = [setup.home_engine(factory, self._models) for factory in factories]
        for home in homes:
            setup.check_pool(home, self._concurrency)
            setup.check_isolation(home)
        return homes

    def _beat_timeout(self) -> float:
        """A beat that is not answered must be over before the lease is: in time for another one."""
        shortest = min(task.visibility_timeout for task in self._tasks)
        return min(max(shortest / 3, _LEAST_BEAT_TIMEOUT), self._control_timeout)

    def _open_up(self, control: Control, keeper_control: Control) -> None:
        jobs = self._models.table(self._models.job)
        with control.line.bounded(), keeper_control.line.bounded():
            poolers.check(control.engine, keeper_control.engine)
        control.open()
        keeper_control.open()
        with control.begin() as connection:
            check_schema(connection, jobs.schema, job_table=jobs.name)
        self._emit(WorkerStarted(self.name, tuple(self._lanes), self._concurrency))

    @contextmanager
    def _on_duty(self, shift: Shift, *, signals: bool) -> Iterator[None]:
        """Hand signals and calls of :meth:`stop` to the shift, those that came too early first."""
        with stopping_on_signals(shift.stop) if signals else nullcontext():
            self._take_over(shift)
            try:
                yield
            finally:
                self._take_over(None)

    def _take_over(self, shift: Shift | None) -> None:
        with self._stop_lock:
            self._shift = shift
            if shift is not None and self._stop_early:
                shift.stop()
            self._stop_early = False

    def _new_shift(self, own: Line, keepers: Line, *, drain: bool) -> Shift:
        machine = Machine(
            concurrency=self._concurrency,
            poll_interval=min(self._poll, self._sweep, *([_DRAIN_INTERVAL] if drain else [])),
            sweep_interval=self._sweep,
            grace=self._grace,
            drain=drain,
        )
        control, keeper_control = (
            Control(each, self._models, self.name, self._job_log, self._requeue_jitter) for each in (own, keepers)
        )
        open_up = partial(self._open_up, control, keeper_control)
        breadths = setup.breadths(self._tasks)
        lanes = [Lane(queue, leases, breadths.get(queue, 1)) for queue, leases in self._lanes.items()]
        return Shift(self._tasks, lanes, machine, control, keeper_control, self._emit, open_up)

    def _handling(self, shift: Shift, overheard: Overheard) -> Handling:
        return Handling(
            sources=self._sources_of(self._sessions),
            async_sources=self._sources_of(self._async_sessions),
            books=Books(self._models, self._natural_keys_only, self._job_log),
            idle_timeout=self._idle_timeout,
            begin=shift.held.recorder.begin,
            conclude=shift.held.recorder.conclude,
            overheard=overheard,
        )

    def _sources_of(self, factory: Callable[[], Any] | None) -> Sources | None:
        if factory is None:
            return None
        home = setup.home_engine(factory, self._models)
        return Sources(source_of(factory, home), connections_of(home, self._concurrency))

    @contextmanager
    def _hinted(self, shift: Shift, home: Engine) -> Iterator[None]:
        """Hear of new jobs while the block runs, if that is wanted."""
        if self._listen is False:
            yield
            return
        where = home if self._listen is True else setup.engine_of(self._listen)
        with line(where, self._control_timeout) as own:
            rely = shift.rely_on_hints
            ear = Ear(shift.hear, mended=partial(rely, healthy=True), failed=partial(rely, healthy=False))
            listener = Listener(own, self._models, self.name, ear, self._emit)
            shift.when_open(listener.start)
            with closing(listener):
                yield

    @contextmanager
    def _runtimes(self, shift: Shift, handling: Handling) -> Iterator[Callable[[Load], None]]:
        """What starts a load: threads for functions, an event loop for coroutine functions."""
        if self._async_sessions is None:
            with closing(ThreadRuntime(handling.perform, shift.held.turns.next)) as threads:
                yield threads.start
        else:
            dispose = partial(setup.dispose, self._async_sessions)
            with closing(Both(handling.perform, handling.perform_async, shift.held.turns.next, dispose)) as both:
                yield both.start

    def _emit(self, event: Event) -> None:
        """A subscriber that fails is reported and changes nothing."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                logger.exception("%s: a subscriber failed on %s", self.name, type(event).__name__)
