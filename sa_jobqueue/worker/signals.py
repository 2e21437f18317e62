"""SIGTERM and SIGINT as a call, for as long as a worker works."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["stopping_on_signals"]


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at every SIGTERM and SIGINT, and put the application's handlers back at the end.

    Outside the main thread signals cannot be handled: nothing happens there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(name, lambda *_: stop()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            # None stands for a handler that was not set from Python, and cannot be put back.
            signal.signal(name, signal.SIG_DFL if handler is None else handler)
