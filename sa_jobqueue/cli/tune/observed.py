"""What ``tune`` saw and what it says about it: frozen values, so that every judgement is a function of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from sa_jobqueue import histogram
from sa_jobqueue.backoff import Backoff
from sa_jobqueue.states import Outcome

__all__ = [
    "ENOUGH",
    "Deaths",
    "Figures",
    "Fleet",
    "Observation",
    "QueueLoad",
    "Recommendation",
    "Server",
    "Settings",
    "Table",
    "TaskRuns",
    "Unseen",
]

Figures: TypeAlias = Mapping[str, float | None]

ENOUGH: Final = 100
"""Runs in the window from which on a p99 means anything."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One setting, and why. ``scope`` and ``name`` say of what; ``now`` is None where the database does not know it.

    ``figures`` are the numbers behind ``why``, times in seconds.
    """

    scope: str
    name: str
    setting: str
    now: str | None
    recommended: str
    why: str
    figures: Figures = field(default_factory=dict)

    @property
    def change(self) -> bool:
        """False: it is right as it is, and ``why`` says why one may have doubted. True also if ``now`` is not known."""
        return self.now != self.recommended


@dataclass(frozen=True, slots=True)
class Unseen:
    """What the server would not show, in its own words."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class TaskRuns:
    """What workers counted of one task. ``busiest`` is the most runs that were counted in one minute."""

    task: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    buckets: Mapping[int, int] = field(default_factory=dict)
    busiest: int = 0

    @property
    def runs(self) -> int:
        """Runs whose time is known."""
        return sum(self.buckets.values())

    @property
    def ended(self) -> int:
        """Runs that succeeded or failed."""
        return sum(self.count(each) for each in (Outcome.DONE, Outcome.RETRIED, Outcome.DEAD))

    @property
    def failing(self) -> float:
        """The share of them that failed."""
        return 1 - self.count(Outcome.DONE) / self.ended if self.ended else 0.0

    @property
    def p50(self) -> float:
        """Seconds; 0 without runs."""
        return histogram.quantile(self.buckets, 0.5) or 0.0

    @property
    def p99(self) -> float:
        """Seconds; 0 without runs."""
        return histogram.quantile(self.buckets, 0.99) or 0.0

    @property
    def mean(self) -> float:
        """Seconds; 0 without runs."""
        return histogram.mean(self.buckets) or 0.0

    @property
    def longest(self) -> float | None:
        """Seconds that no run exceeded; None if one was too long to be told apart from longer ones."""
        last = max((bucket for bucket, count in self.buckets.items() if count), default=0)
        return None if last >= histogram.BUCKETS - 1 else histogram.upper_bound(last)

    def count(self, outcome: Outcome) -> int:
        """How many runs ended so."""
        return self.outcomes.get(outcome, 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known of a task's settings: all of them if a registry was given (``declared``), else what rows tell."""

    declared: bool = False
    visibility_timeout: float | None = None
    max_attempts: int | None = None
    time_limit: float | None = None
    backoff: Backoff | None = None
    group_commit: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Deaths:
    """Dead letters of one task: failed on their last attempt, the retries that these had, and leases that ran out."""

    failed: int = 0
    retries: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One queue: what may run now and since when, and what its workers did.

    ``fresh`` of the ``ready`` jobs were enqueued in the time that was counted; ``busy`` is the sum of all run times.
    """

    queue: str
    ready: int = 0
    oldest: float = 0.0
    fresh: int = 0
    finished: int = 0
    runs: int = 0
    busy: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds of a run; 0 without runs."""
        return self.busy / self.runs if self.runs else 0.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What whoever asks says about the workers; the database does not know it."""

    cores: int = 1
    processes: int | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """Settings and counters of the server.

    ``reserved`` connections are kept for superusers; ``fsync_seconds`` is the mean time of a flush of the WAL to disk.
    """

    max_connections: int = 100
    reserved: int = 3
    synchronous_commit: str = "on"
    fsync: str = "on"
    naptime: float = 60.0
    flushes_timed: bool = False
    fsync_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One of our tables: rows by the statistics, bytes on disk, and the storage parameters that were set.

    ``width`` is the mean size in bytes of a row's values; None if the table was never analyzed, or must not be read.
    """

    name: str
    live: int = 0
    heap: int = 0
    indexes: int = 0
    width: float | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a queue. ``counted`` is the part of the window, in seconds, in which anything was counted.

    None, and what is missing in ``tables``, could not be seen; ``unseen`` says why. ``own_keys`` is the share of dedup
    rows, in a sample, whose job had no natural key.
    """

    at: datetime
    window: float
    counted: float
    fleet: Fleet
    tasks: tuple[TaskRuns, ...] = ()
    settings: Mapping[str, Settings] = field(default_factory=dict)
    deaths: Mapping[str, Deaths] = field(default_factory=dict)
    queues: tuple[QueueLoad, ...] = ()
    server: Server | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)
    own_keys: float | None = None
    unseen: tuple[Unseen, ...] = ()
