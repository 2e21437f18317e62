"""A sample of something that is slow to ask for, or may not answer at all, for readers that cannot wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Sample", "Sampler"]

logger = logging.getLogger("sa_jobqueue")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sample(Generic[T]):
    """``taken`` is an instant of the monotonic clock in seconds; ``value`` is None if there was no answer."""

    taken: float
    value: T | None

    @property
    def age(self) -> float:
        """Seconds since it was taken."""
        return time.monotonic() - self.taken


class Sampler(Generic[T]):
    """Asks ``read`` on a thread of its own, one question at a time, and only when somebody wants to know.

    Args:
        read: may take its time, and may raise.
        max_age: seconds for which a sample serves without a new question; one that says "no answer" too.
        patience: seconds that :meth:`latest` waits for a new sample.
        stale_after: seconds for which the last sample serves on while a new one is under way.
    """

    def __init__(self, read: Callable[[], T], *, max_age: float, patience: float, stale_after: float) -> None:
        self._read, self._max_age, self._patience, self._stale_after = read, max_age, patience, stale_after
        self._lock = threading.Lock()
        self._sample: Sample[T] | None = None
        self._under_way: threading.Event | None = None

    def latest(self) -> Sample[T] | None:
        """The newest sample there is within ``patience``; None if there is none that still serves."""
        with self._lock:
            if self._sample is not None and self._sample.age < self._max_age:
                return self._sample
            answered = self._ask()
        answered.wait(self._patience)
        with self._lock:
            sample = self._sample
        return sample if sample is not None and sample.age < max(self._stale_after, self._max_age) else None

    def _ask(self) -> threading.Event:
        if self._under_way is None:
            self._under_way = threading.Event()
            threading.Thread(target=self._renew, args=[self._under_way], name="sa-jobqueue-sample", daemon=True).start()
        return self._under_way

    def _renew(self, answered: threading.Event) -> None:
        value: T | None = None
        try:
            value = self._read()
        except Exception as error:  # noqa: BLE001 (whatever is raised, there was no answer)
            logger.warning("the queue statistics could not be read: %s", type(error).__name__)
        with self._lock:
            self._sample, self._under_way = Sample(time.monotonic(), value), None
        answered.set()
