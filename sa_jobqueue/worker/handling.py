"""Handlers in transactions of their own session or connection: prepare, call, acknowledge last, commit.

The handler's transaction touches the job's row only in its last statement, so that the heartbeat is never blocked by
the job that it keeps alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from sa_jobqueue.errors import CommitRefused, JobQueueError
from sa_jobqueue.values import ClaimedJob
from sa_jobqueue.worker.hand import Hand
from sa_jobqueue.worker.run import Load, Run
from sa_jobqueue.worker.scopes import Books, Scope, Source, Sources
from sa_jobqueue.worker.verdict import is_broken
from sa_jobqueue.worker.watch import Overheard, Watch

__all__ = ["Handling"]

T = TypeVar("T")
Conclude = Callable[[Run, BaseException | None], None]
"""Told how a run ended; None: its transaction committed."""

_CLOSED = (
    "the handler closed its {what}, which undid what it had changed. Leave the {what} open: the worker commits and "
    "closes it."
)
_DISTURBED = "a handler of the group undid something that others may have done."


@dataclass(frozen=True, slots=True)
class Handling:
    """How handlers are run, and what makes their sessions and connections.

    ``idle_timeout`` (seconds) is the ``idle_in_transaction_session_timeout`` of their transactions, unless the server,
    the database or the role sets one. ``begin`` is told that a handler's turn has come, and answers whether it is still
    wanted; ``conclude`` is told how it ended, on the thread that it ran on.
    """

    sources: Sources | None
    async_sources: Sources | None
    books: Books
    idle_timeout: float
    begin: Callable[[Run], bool]
    conclude: Conclude
    overheard: Overheard

    def perform(self, load: Load, hand: Hand) -> None:
        """Run a load to its end; whatever a handler raises, its transaction is rolled back before it is concluded."""
        act = partial(self._transact, hand)
        if len(load.runs) > 1 and self._concludes_together(load, _raised(act, load.runs)):
            return
        for run in load.runs:
            if not run.finished:
                self.conclude(run, _raised(act, [run]))

    async def perform_async(self, load: Load, hand: Hand) -> None:
        """:meth:`perform` for coroutine functions.

        A record may have to wait for the database, so it is written on another thread; a committed run needs none.
        """
        act = partial(self._transact_async, hand)
        if len(load.runs) > 1:
            error = await _raised_in(act, load.runs)
            if await _aside(error, self._concludes_together, load, error):
                return
        for run in load.runs:
            if not run.finished:
                error = await _raised_in(act, [run])
                await _aside(error, self.conclude, run, error)

    def _concludes_together(self, load: Load, error: BaseException | None) -> bool:
        """Whether nothing is left to run one by one: all is committed, or the connection broke, perhaps meanwhile."""
        together = error is None or is_broken(error)
        for run in load.runs:
            if together or run.committed or run.condemned:
                self.conclude(run, error)
        return together

    def _transact(self, hand: Hand, runs: Sequence[Run]) -> None:
        source = cast("Sources", self.sources).of(runs[0].task)
        given = source.open(hand)
        try:
            scope = source.scope(given, self._watch(source, runs), self.books)
            if _is_batch(runs):
                runs[0].task.function(given, self._begin_batch(runs))
            else:
                for run in self._turns(runs):
                    run.task.run(given, run.job)
                    if len(runs) > 1:
                        scope.keep()
            self._complete(scope, runs)
        finally:
            _detach(runs)
            given.close()
            source.forget()

    async def _transact_async(self, hand: Hand, runs: Sequence[Run]) -> None:
        source = cast("Sources", self.async_sources).of(runs[0].task)
        given, scope = await source.aopen(hand), None
        try:
            scope = await source.ascope(given, self._watch(source, runs), self.books)
            if _is_batch(runs):
                await runs[0].task.function(given, self._begin_batch(runs))
            else:
                for run in self._turns(runs):
                    await run.task.arun(given, run.job)
                    if len(runs) > 1:
                        await given.run_sync(lambda _: scope.keep())
            await given.run_sync(lambda _: self._complete(scope, runs))
        finally:
            _detach(runs)
            if scope is None or not scope.over:
                await asyncio.shield(given.close())  # a cancellation that comes meanwhile must not leave it open

    def _watch(self, source: Source, runs: Sequence[Run]) -> Watch:
        return Watch(runs, source.home, int(self.idle_timeout * 1000), self.overheard)

    def _turns(self, runs: Sequence[Run]) -> Iterator[Run]:
        """Those whose handlers are to be called, one after the other; a duplicate's is not."""
        for run in runs:
            if not run.job.duplicate:
                self._begin(run)
                yield run
                if len(runs) > 1:
                    run.pause()

    def _begin_batch(self, runs: Sequence[Run]) -> list[ClaimedJob]:
        for run in runs:
            self._begin(run)
        return [run.job for run in runs]

    def _begin(self, run: Run) -> None:
        if not self.begin(run):
            msg = f"the run of job {run.job.id} was given up while it waited for its turn"
            raise JobQueueError(msg)

    def _complete(self, scope: Scope, runs: Sequence[Run]) -> None:
        """Acknowledge, unless the handler has done so by itself, and commit.

        If it has even committed by itself, this fails, but the run is known to be done.
        """
        watch = scope.watch
        if scope.closed:
            raise CommitRefused(watch.expected, _CLOSED.format(what=scope.what))
        if watch.disturbed and len(runs) > 1:
            raise CommitRefused(watch.expected, _DISTURBED)
        scope.settle(runs)
        scope.commit()


def _is_batch(runs: Sequence[Run]) -> bool:
    return len(runs) > 1 and runs[0].task.batch is not None


def _raised(act: Callable[[Sequence[Run]], None], runs: Sequence[Run]) -> BaseException | None:
    """A handler may raise anything; SystemExit and its like end a handler, not the worker."""
    try:
        act(runs)
    except BaseException as error:  # noqa: BLE001 - each way to end is recorded, and none of them ends this thread
        return error
    return None


async def _raised_in(
    act: Callable[[Sequence[Run]], Coroutine[Any, Any, None]], runs: Sequence[Run]
) -> BaseException | None:
    """In a task of its own, so that a cancellation from outside reaches these runs and no others."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(_caught(act(runs)))
    for run in runs:
        run.interrupt = partial(loop.call_soon_threadsafe, task.cancel)
    try:
        return await task
    except asyncio.CancelledError as error:
        return error
    finally:
        for run in runs:
            run.interrupt = None


async def _caught(acting: Coroutine[Any, Any, None]) -> BaseException | None:
    """A task that lets SystemExit or KeyboardInterrupt out takes the event loop with it."""
    try:
        await acting
    except BaseException as error:  # noqa: BLE001 - as above
        return error
    return None


async def _aside(error: BaseException | None, act: Callable[..., T], *args: Any) -> T:
    """On this thread if nothing went wrong, so that nothing has to wait; else on another one."""
    return act(*args) if error is None else await asyncio.to_thread(act, *args)


def _detach(runs: Sequence[Run]) -> None:
    for run in runs:
        run.detach()
