"""Counting what the engines of this process meet, those of the workers too."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Engine, event

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def counting(name: str) -> Iterator[list[None]]:
    """One entry for each time that the event ``name`` fires on any engine."""
    fired: list[None] = []

    def count(*_details: object) -> None:
        fired.append(None)

    event.listen(Engine, name, count)
    try:
        yield fired
    finally:
        event.remove(Engine, name, count)
