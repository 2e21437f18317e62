"""The two thin shells that handlers run in: threads, and one event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from queue import SimpleQueue

from sa_jobqueue.worker.run import Run

__all__ = ["LoopRuntime", "ThreadRuntime"]

Conclude = Callable[[Run, BaseException | None], None]
"""Told how a handler ended; None: its transaction committed."""


class ThreadRuntime:
    """Runs handlers on daemon threads; a thread whose run was given up ends when its handler comes back."""

    def __init__(self, perform: Callable[[Run], None], conclude: Conclude) -> None:
        self._perform, self._conclude = perform, conclude
        self._waiting: SimpleQueue[Run | None] = SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)

    def start(self, run: Run) -> None:
        """Run a handler on an idle thread, or on a new one."""
        if not self._idle.acquire(blocking=False):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"sa-jobqueue-handler-{self._threads}", daemon=True).start()
        self._waiting.put(run)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _serve(self) -> None:
        while (run := self._waiting.get()) is not None:
            if run.begin():
                self._end(run)
            if run.abandoned:
                return
            self._idle.release()

    def _end(self, run: Run) -> None:
        """A handler may raise anything; each way to end is recorded, and none of them ends this thread."""
        try:
            self._perform(run)
        except BaseException as error:  # noqa: BLE001 - SystemExit and its like end a handler, not the worker
            self._conclude(run, error)
        else:
            self._conclude(run, None)


class LoopRuntime:
    """Runs coroutine handlers on one event loop."""

    def __init__(
        self, perform: Callable[[Run], Awaitable[None]], conclude: Conclude, dispose: Callable[[], Awaitable[None]]
    ) -> None:
        self._perform, self._conclude, self._dispose = perform, conclude, dispose
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sa-jobqueue-loop", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()

    def start(self, run: Run) -> None:
        """Run a coroutine handler."""
        self._loop.call_soon_threadsafe(self._spawn, run)

    def close(self, timeout: float = 5.0) -> None:
        """Dispose of the engine's connections in their own loop, then end it; a blocked loop is left behind."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        try:
            closing.result(timeout)
        except TimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        self._loop.close()

    def _spawn(self, run: Run) -> None:
        task = self._loop.create_task(self._end(run))
        run.interrupt = partial(_cancel_from_outside, self._loop, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, run: Run) -> None:
        """The record is written on another thread, since it may have to wait; a cancelled handler is recorded too."""
        if not run.begin():
            return
        error: BaseException | None = None
        try:
            await self._perform(run)
        except BaseException as raised:  # noqa: BLE001 - as above
            error = raised
        await asyncio.to_thread(self._conclude, run, error)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dispose()
        await self._loop.shutdown_default_executor()


def _cancel_from_outside(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    loop.call_soon_threadsafe(task.cancel)
