"""The one way to wait in this suite: for something to become true, never for time to pass."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def wait_until(predicate: Callable[[], object], *, timeout: float = 10.0, what: str) -> None:
    """Return as soon as ``predicate()`` is true; fail the test, naming ``what``, when it is not in time."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            message = f"waited {timeout:g} s in vain for {what}"
            raise AssertionError(message)
        pause.wait(0.01)


@contextmanager
def no_thread_left_behind(*, timeout: float = 20.0) -> Iterator[None]:
    """Wait at the end of the block for the threads that began in it: what they give back must find its pool open."""
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, timeout=timeout, what="the threads of a worker to end")
