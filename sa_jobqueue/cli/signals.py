"""Signals that end a command by an exception, so that every ``finally`` runs."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ending_on"]


@contextmanager
def ending_on(*signals: signal.Signals, code: int | None = None, at_once: bool = True) -> Iterator[Callable[[], None]]:
    """Each of the signals raises SystemExit in the main thread, with ``code`` or with 128 + its number.

    Python drops an exception that is raised while a weak reference's callback or a ``__del__`` happens to run, and
    SQLAlchemy has many of both. So the block is handed a function to call where it can end, which raises again; a
    block that calls it often enough needs no exception from elsewhere, and says ``at_once=False``.
    """
    told: list[int] = []

    def check() -> None:
        if told:
            sys.exit(128 + told[0] if code is None else code)

    def handle(number: int, _: object) -> None:
        told.append(number)
        if at_once:
            check()

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    former = {each: signal.signal(each, handle) for each in signals}
    try:
        yield check
    finally:
        for each, handler in former.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
