"""What happens elsewhere, and is to be done on the loop's own thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

__all__ = ["Inbox"]


class Inbox:
    """Functions, from any thread; ``SimpleQueue.put`` is safe inside a signal handler."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def put(self, act: Callable[[], None]) -> None:
        """Let the loop call ``act``."""
        self._waiting.put(act)

    def wake(self) -> None:
        """Wake the loop up; what has happened is written elsewhere."""
        self._waiting.put(_nothing)

    def fail(self, error: Exception) -> None:
        """Let the loop raise ``error``."""

        def fail() -> None:
            raise error

        self._waiting.put(fail)

    def take(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for one thing to happen, then take everything else that has."""
        with suppress(Empty):
            self._waiting.get(timeout=timeout)()
            while True:
                self._waiting.get_nowait()()


def _nothing() -> None:
    """What a loop does that was only woken up."""
