"""How long a failed job waits: ``delay = base * 2**retry + random(0, jitter)``, capped."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta

from sa_jobqueue.errors import InvalidArgument

__all__ = ["Backoff"]

_SHORTEST, _LONGEST = 0.001, 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with additive jitter.

    ``retry`` counts from 0: after the first failed attempt a job waits ``base`` seconds, then ``2 * base``,
    ``4 * base``. The exponential part is held at ``cap - jitter``, so the jitter still spreads jobs that have reached
    the cap (after an outage they must not all come back in the same second) and no delay exceeds ``cap``.

    The shape is the one described by M. Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), with
    additive rather than full jitter, so that a delay never falls below the exponential part.

    Args:
        base: seconds before the first retry, at least a millisecond.
        cap: longest delay in seconds, at least ``base``, at most ten years.
        jitter: width in seconds of the uniform random part, at least 0 and less than ``cap``.

    Raises:
        InvalidArgument: if the three do not fit together.
    """

    base: float = 2.0
    cap: float = 600.0
    jitter: float = 1.0
    _random: random.Random = field(default_factory=random.SystemRandom, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _SHORTEST <= self.base <= self.cap <= _LONGEST:
            msg = (
                f"Backoff needs {_SHORTEST} <= base <= cap <= {_LONGEST:.0f} seconds; "
                f"got base={self.base}, cap={self.cap}"
            )
            raise InvalidArgument(msg)
        if not 0 <= self.jitter < self.cap:
            msg = f"Backoff needs 0 <= jitter < cap; got jitter={self.jitter}, cap={self.cap}"
            raise InvalidArgument(msg)

    def seconds(self, attempt: int) -> float:
        """Seconds to wait after ``attempt`` (1 for the first) has failed; more than 0, at most ``cap``."""
        ceiling = self.cap - self.jitter
        exponent = max(attempt, 1) - 1
        growth = ceiling if exponent > _doublings(self.base, ceiling) else min(self.base * 2.0**exponent, ceiling)
        return growth + self._random.random() * self.jitter

    def delay(self, attempt: int) -> timedelta:
        """:meth:`seconds` as a timedelta."""
        return timedelta(seconds=self.seconds(attempt))


def _doublings(base: float, ceiling: float) -> int:
    """How often ``base`` can be doubled before ``ceiling`` is passed for sure; keeps ``2**n`` out of overflow."""
    return max(int(ceiling / base), 1).bit_length() + 1
