"""The one way to wait in this suite: for something to become true, never for time to pass."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(predicate: Callable[[], object], *, timeout: float = 10.0, what: str) -> None:
    """Return as soon as ``predicate()`` is true; fail the test, naming ``what``, when it is not in time."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            message = f"waited {timeout:g} s in vain for {what}"
            raise AssertionError(message)
        pause.wait(0.01)
