"""Figures for people: a recommendation must not look more exact than what it was derived from."""

from __future__ import annotations

import math

__all__ = ["at_least", "at_most", "many", "percent"]

_STEPS = (1, 2, 5, 10)


def at_least(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 … from ``value`` (positive) up."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in _STEPS if step * scale >= value * (1 - 1e-9))


def at_most(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 … from ``value`` (positive) down."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in reversed(_STEPS) if step * scale <= value * (1 + 1e-9))


def many(count: int, what: str) -> str:
    """``1 job``, ``2,000 jobs``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """A share as people say it: ``12 %``, ``0.4 %``."""
    hundredths = 100 * share
    return f"{hundredths:.0f} %" if hundredths >= 1 or not hundredths else f"{hundredths:.1g} %"
