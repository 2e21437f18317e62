"""How long finished things are kept, and what one prune took away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from sa_jobqueue.errors import InvalidArgument
from sa_jobqueue.values import to_seconds

__all__ = ["MOST_PRUNED", "PRUNE_LIMIT", "Bookmark", "Pruned", "Retention", "check_limit"]

PRUNE_LIMIT = 5_000
"""Rows of each table that one batch looks at, unless told otherwise."""
MOST_PRUNED = 10_000
"""Rows that one batch may be told to look at."""

_SHORTEST = 1.0

Bookmark = str | datetime
"""Where a walk goes on: behind a row of the heap, or at an instant of an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What to prune, and from which age on (timedelta or seconds, at least 1); what is not named is kept for ever.

    Args:
        open_dead_letters: dead letters that nobody has redriven, by the age of the death; their jobs go with them.
        redriven_dead_letters: dead letters whose jobs live again or are done, by the age of the redrive.
        job_log: runs, by the age of their end.
        rollup: counters of whole minutes.
        dedup_keys: effects, by their age. A redelivery that is enqueued later runs again. A key that a live job or an
            open dead letter has is kept, however old.

    Raises:
        InvalidArgument: nothing is named, or an age is not one.
    """

    # The order is that of the prune: a key goes together with the last dead letter that had it.
    open_dead_letters: timedelta | float | None = None
    redriven_dead_letters: timedelta | float | None = None
    job_log: timedelta | float | None = None
    rollup: timedelta | float | None = None
    dedup_keys: timedelta | float | None = None

    def __post_init__(self) -> None:
        if not self.ages:
            msg = f"name what to prune, and its age: Retention({_NAMES[-1]}=timedelta(days=90)); also {_OTHER_NAMES}"
            raise InvalidArgument(msg)

    @property
    def ages(self) -> dict[str, timedelta]:
        """The ages by name, of what is to be pruned only."""
        given = {name: getattr(self, name) for name in _NAMES}
        return {
            name: timedelta(seconds=to_seconds(name, age, least=_SHORTEST))
            for name, age in given.items()
            if age is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows a prune deleted; ``more`` says that there is more to look at, in another transaction."""

    open_dead_letters: int = 0
    redriven_dead_letters: int = 0
    job_log: int = 0
    rollup: int = 0
    dedup_keys: int = 0
    bookmarks: Mapping[str, Bookmark] = field(default_factory=dict, repr=False, hash=False)
    """Where the next batch goes on, by name; what is not there is at its end."""

    def __add__(self, later: Pruned) -> Pruned:
        mine, theirs = self.counts, later.counts
        return Pruned(**{name: mine[name] + theirs[name] for name in mine}, bookmarks=later.bookmarks)

    @property
    def counts(self) -> dict[str, int]:
        """Rows deleted, by name."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def total(self) -> int:
        """Rows deleted in all."""
        return sum(self.counts.values())

    @property
    def more(self) -> bool:
        """False if every table was walked to its end."""
        return bool(self.bookmarks)


_NAMES = tuple(each.name for each in fields(Retention))
_OTHER_NAMES = ", ".join(_NAMES[:-1])


def check_limit(limit: int) -> None:
    """Raise InvalidArgument unless ``limit`` is a number of rows that one batch may look at."""
    if type(limit) is not int or not 1 <= limit <= MOST_PRUNED:
        msg = f"limit must be an int between 1 and {MOST_PRUNED}; got {limit!r}. Call again for more, behind=the answer"
        raise InvalidArgument(msg)
