"""Ages as people write them: ``90d``, ``12h``, ``30min``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import typer

__all__ = ["parse_age"]

_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE: Final = re.compile(r"(\d{1,9})\s*([a-z]+)")


def parse_age(text: str | timedelta) -> timedelta:
    """A number and a unit as a timedelta.

    Raises:
        BadParameter: it is not that; without a unit it would be guessed, and what is pruned is gone.
    """
    if isinstance(text, timedelta):
        return text
    found = _AGE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        msg = f"{text!r} is no age; write a number and one of {', '.join(_UNITS)}, such as 90d"
        raise typer.BadParameter(msg)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
