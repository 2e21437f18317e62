"""The two thin shells that handlers run in: threads, and one event loop on a thread of its own.

``following`` is asked for the next load when a slot comes free, and answers None if there is none for this runtime.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing, closing
from functools import partial
from queue import SimpleQueue

from sa_jobqueue.worker.hand import Hand
from sa_jobqueue.worker.run import Load

__all__ = ["Both", "LoopRuntime", "ThreadRuntime"]

Following = Callable[[], Load | None]


class ThreadRuntime:
    """Runs handlers on daemon threads; a thread whose load was given up ends when its handler comes back."""

    def __init__(self, perform: Callable[[Load, Hand], None], following: Following) -> None:
        self._perform, self._following = perform, following
        self._waiting: SimpleQueue[Load | None] = SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)

    def start(self, load: Load) -> None:
        """Run a load on an idle thread, or on a new one; called with its slot taken."""
        if not self._idle.acquire(blocking=False):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"sa-jobqueue-handler-{self._threads}", daemon=True).start()
        self._waiting.put(load)

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _serve(self) -> None:
        while (load := self._waiting.get()) is not None and self._run_on(load):
            self._idle.release()

    def _run_on(self, load: Load | None) -> bool:
        """Run loads as long as one follows another; False if one was given up, and another thread has its slot."""
        with closing(Hand()) as hand:
            while load is not None:
                self._perform(load, hand)
                if not load.leave():
                    return False
                load = self._following()
        return True


class LoopRuntime:
    """Runs coroutine handlers on one event loop."""

    def __init__(
        self,
        perform: Callable[[Load, Hand], Awaitable[None]],
        following: Following,
        dispose: Callable[[], Awaitable[None]],
    ) -> None:
        self._perform, self._following, self._dispose = perform, following, dispose
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sa-jobqueue-loop", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()

    def start(self, load: Load) -> None:
        """Run a load; called with its slot taken."""
        self._loop.call_soon_threadsafe(self._spawn, load)

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

    def _spawn(self, load: Load) -> None:
        task = self._loop.create_task(self._serve(load))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, load: Load | None) -> None:
        async with aclosing(Hand()) as hand:
            while load is not None:
                await self._perform(load, hand)
                load = self._following() if load.leave() else None

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dispose()
        await self._loop.shutdown_default_executor()


class Both:
    """A runtime for functions and one for coroutine functions, which share the slots."""

    def __init__(
        self,
        perform: Callable[[Load, Hand], None],
        perform_async: Callable[[Load, Hand], Awaitable[None]],
        following: Following,
        dispose: Callable[[], Awaitable[None]],
    ) -> None:
        self._following = following
        self._threads = ThreadRuntime(perform, partial(self._next, asynchronous=False))
        self._loop = LoopRuntime(perform_async, partial(self._next, asynchronous=True), dispose)

    def start(self, load: Load) -> None:
        """Run a load where its task belongs; called with its slot taken."""
        if load.task.is_async:
            self._loop.start(load)
        else:
            self._threads.start(load)

    def close(self) -> None:
        """Close both."""
        self._threads.close()
        self._loop.close()

    def _next(self, *, asynchronous: bool) -> Load | None:
        """The next load, unless it belongs to the other runtime: then that one goes on."""
        load = self._following()
        if load is None or load.task.is_async is asynchronous:
            return load
        self.start(load)
        return None
