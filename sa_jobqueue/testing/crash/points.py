"""Where a worker process can die: before and after each statement and each COMMIT or ROLLBACK that it sends.

What happens between two of these boundaries never reaches the server, so a death there is the same to the database as a
death at either of them. The list is therefore complete, as far as the database can tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Any, Literal

__all__ = ["Actor", "CrashPoint", "Numbering", "actor_of", "distinct", "name_of"]


class Actor(StrEnum):
    """Who sends a statement; told by the thread."""

    LOOP = "loop"
    HANDLER = "handler"
    RECORDER = "recorder"
    KEEPER = "keeper"
    LISTENER = "listener"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One boundary: ``when`` is before or after, ``nth`` counts from 1 among the points that are otherwise equal."""

    who: Actor
    when: Literal["before", "after"]
    what: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.what} of the {self.who}" + (f", no. {self.nth}" if self.nth > 1 else "")

    def as_list(self) -> list[Any]:
        """For JSON."""
        return list(astuple(self))

    @classmethod
    def from_list(cls, values: list[Any]) -> CrashPoint:
        """The inverse of :meth:`as_list`."""
        who, when, what, nth = values
        return cls(Actor(who), when, what, nth)


@dataclass(slots=True)
class Numbering:
    """Gives each passage of a boundary its number; one for each process."""

    _seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def point(self, who: Actor, when: Literal["before", "after"], what: str) -> CrashPoint:
        """The point that is passed now."""
        self._seen[who, when, what] += 1
        return CrashPoint(who, when, what, self._seen[who, when, what])


def distinct(passed: Iterable[CrashPoint]) -> list[CrashPoint]:
    """The points at which a death differs: of the polls and beats that repeat by the clock, the first one.

    The listener is none: it changes no row, and goes its own way.
    """
    by_clock = {Actor.LOOP, Actor.KEEPER}
    relevant = [point for point in passed if point.who is not Actor.LISTENER]
    return [point for point in relevant if point.nth == 1 or point.who not in by_clock]


_NAMED = {"sa-jobqueue-keeper": Actor.KEEPER, "sa-jobqueue-listener": Actor.LISTENER}


def actor_of(thread: str) -> Actor:
    """Who runs on the thread of that name; what is not the worker's is a handler."""
    if thread == "MainThread":
        return Actor.LOOP
    if thread in _NAMED:
        return _NAMED[thread]
    return Actor.RECORDER if thread.startswith("asyncio_") else Actor.HANDLER


_OURS = (
    ("claim", r"\bpicked AS MATERIALIZED"),
    ("sweep", r"\bdue AS MATERIALIZED"),
    ("heartbeat", r"\breached AS MATERIALIZED"),
    ("bury", r"\bgone AS.*\bINSERT INTO \S*dead_letter"),
    ("ack", r"\bgone AS.*\bwritten AS"),
    ("suppress", r"\bgone AS"),
    ("release", r"\bbefore AS MATERIALIZED.*\bSET status='queued'"),
    ("retry", r"\bbefore AS MATERIALIZED.*\berrors="),
    ("snooze", r"\bbefore AS MATERIALIZED"),
    ("begin", r"^SELECT pg_backend_pid\(\)"),
)
"""The queue's own statements, by what is characteristic of their text."""


def name_of(sql: str) -> str:
    """A statement's short name: the queue's verb, else the SQL verb and its first table."""
    for name, mark in _OURS:
        if re.search(mark, sql, re.DOTALL):
            return name
    verb = sql.split(None, 1)[0].upper()
    table = re.search(r"\b(?:INTO|FROM|UPDATE|SAVEPOINT)\s+([\w.\"]+)", sql, re.IGNORECASE)
    return f"{verb} {table[1]}" if table else verb
