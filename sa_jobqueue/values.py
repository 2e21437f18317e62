"""Frozen values that cross the border of a session; no mapped row ever does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sa_jobqueue.errors import InvalidArgument
from sa_jobqueue.payload import check_object, check_text, is_plain
from sa_jobqueue.states import State

__all__ = [
    "Acked",
    "ClaimedJob",
    "EnqueuedJob",
    "Failed",
    "NewJob",
    "QueueStats",
    "Redriven",
    "Swept",
    "check_name",
    "to_seconds",
]

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 5
OWN_KEY_PREFIX = "job#"

_NAME_BYTES, _KEY_BYTES = 255, 1_024
_INT32 = 2**31
_LONGEST = 100 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue, checked when it is built: whatever passes here, the server stores unchanged.

    Args:
        task: name of the handler, at most 255 bytes of UTF-8.
        args: the handler's keyword arguments, as JSON (see :mod:`sa_jobqueue.payload`); None is stored as ``{}``.
        queue: name of the queue, at most 255 bytes.
        priority: smaller runs first; 32 bits.
        delay: timedelta or seconds from now, by the database's clock.
        run_at: an aware datetime; not together with ``delay``.
        max_attempts: claims that may end without an ack before the job is a dead letter; at least 1.
        dedup_key: natural key of the *effect*: of all jobs of this task with this key, one takes effect.
        unique_key: while a live job holds this key, enqueueing it again answers with that job.
        headers: JSON that travels with the job, such as a trace context.

    Raises:
        InvalidArgument: on a value out of range; InvalidPayload names the path inside ``args`` or ``headers``.
    """

    task: str
    args: Mapping[str, Any] | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    delay: timedelta | float | None = None
    run_at: datetime | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    dedup_key: str | None = None
    unique_key: str | None = None
    headers: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_name("queue", self.queue)
        if self.args is not None:
            check_object(self.args)
        if self.headers is not None:
            check_object(self.headers, root="headers")
        _check_int("priority", self.priority, -_INT32)
        _check_int("max_attempts", self.max_attempts, 1)
        _check_key("dedup_key", self.dedup_key)
        _check_key("unique_key", self.unique_key)
        _check_due(self.delay, self.run_at)

    @property
    def delay_seconds(self) -> float | None:
        """``delay`` in seconds."""
        return None if self.delay is None else to_seconds("delay", self.delay)


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """The answer of enqueue.

    ``created`` is False if a live job already held the ``unique_key``; then ``id`` and ``status`` are that job's.
    """

    id: int
    created: bool
    status: State


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this caller owns until ``lease_expires_at``; plain values, valid after the session is gone.

    ``token`` is the fencing token: it only grows for one job, so a receiving side that remembers the largest one it
    has seen can refuse a late writer. ``duplicate`` says that the effect of the dedup key exists already. ``args`` and
    ``headers`` are copies: changing them changes nothing that is stored.
    """

    id: int
    queue: str
    task: str
    args: dict[str, Any] = field(repr=False, hash=False)
    headers: dict[str, Any] = field(repr=False, hash=False)
    priority: int
    attempt: int
    max_attempts: int
    token: int
    lease_expires_at: datetime
    enqueued_at: datetime
    claimed_at: datetime
    claimed_by: str | None
    dedup_key: str | None
    unique_key: str | None
    duplicate: bool = False
    requeued: bool = False
    """True if this claim took over an expired lease."""
    runnable_since: datetime | None = None
    """Since when the job could have been claimed; a release gives it this place in its queue again."""

    @property
    def dedup_scope(self) -> str:
        """Scope of the dedup key: the task."""
        return self.task

    @property
    def idempotency_key(self) -> str:
        """The dedup key, or a key of the job's own; the same on every attempt. Hand it to external receivers."""
        return self.dedup_key if self.dedup_key is not None else f"{OWN_KEY_PREFIX}{self.id}"

    @property
    def last_attempt(self) -> bool:
        """True if a failure of this attempt ends in the dead letters."""
        return self.attempt >= self.max_attempts


@dataclass(frozen=True, slots=True)
class Acked:
    """The answer of ack: ``duplicate`` is True if the job was acknowledged without an effect of its own."""

    job_id: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer of fail: ``dead`` says where the job went, ``retry_at`` when it runs again (None: never)."""

    job_id: int
    dead: bool
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Swept:
    """How many jobs one sweep promoted, re-queued after an expired lease, and buried as dead letters."""

    promoted: int = 0
    requeued: int = 0
    dead: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.promoted + other.promoted, self.requeued + other.requeued, self.dead + other.dead)

    @property
    def total(self) -> int:
        """Rows moved in all."""
        return self.promoted + self.requeued + self.dead


@dataclass(frozen=True, slots=True)
class Redriven:
    """Job ids that are live again, and those that were skipped because a live job holds their ``unique_key``."""

    redriven: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Live counts of one queue, and what its workers did within the window that was asked for.

    ``lag_seconds`` is the age of the oldest runnable job, 0 if there is none. The percentiles are of the handler's run
    time; None if nothing ran.
    """

    queue: str
    queued: int = 0
    scheduled: int = 0
    claimed: int = 0
    dead: int = 0
    lag_seconds: float = 0.0
    finished: int = 0
    duplicates: int = 0
    retried: int = 0
    requeued: int = 0
    jobs_per_second: float = 0.0
    p50_seconds: float | None = None
    p99_seconds: float | None = None


def check_name(what: str, name: str) -> None:
    """Raise InvalidArgument unless ``name`` is a non-empty string of at most 255 storable bytes."""
    _check_str(what, name, _NAME_BYTES)


def to_seconds(what: str, value: timedelta | float, *, least: float = 0.0) -> float:
    """A span as seconds.

    Raises:
        InvalidArgument: if it is not a number or timedelta, or not within ``least`` and 100 years.
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not least <= seconds <= _LONGEST:
        msg = f"{what} must be a timedelta or seconds between {least:g} and 100 years; got {value!r}"
        raise InvalidArgument(msg)
    return float(seconds)


def _check_due(delay: timedelta | float | None, run_at: datetime | None) -> None:
    if delay is not None:
        to_seconds("delay", delay)
    if run_at is None:
        return
    if delay is not None:
        msg = "give delay or run_at, not both"
        raise InvalidArgument(msg)
    if not isinstance(run_at, datetime) or run_at.utcoffset() is None:
        msg = f"run_at must be a datetime with a time zone; got {run_at!r}. Say which zone it is in: tzinfo=UTC"
        raise InvalidArgument(msg)


def _check_key(what: str, key: str | None) -> None:
    if key is None:
        return
    _check_str(what, key, _KEY_BYTES)
    if key.startswith(OWN_KEY_PREFIX):
        msg = f"{what} must not start with {OWN_KEY_PREFIX!r}: such keys stand for jobs without a natural key"
        raise InvalidArgument(msg)


def _check_str(what: str, text: str, limit: int) -> None:
    if is_plain(text) and 0 < len(text) <= limit:
        return
    if type(text) is not str or not text:
        msg = f"{what} must be a non-empty str; got {text!r}"
        raise InvalidArgument(msg)
    check_text(what, text)
    if len(text.encode()) > limit:
        msg = f"{what} is {len(text.encode())} bytes long in UTF-8; at most {limit} are allowed"
        raise InvalidArgument(msg)


def _check_int(what: str, value: int, least: int) -> None:
    if type(value) is not int or not least <= value < _INT32:
        msg = f"{what} must be an int between {least} and {_INT32 - 1}; got {value!r}"
        raise InvalidArgument(msg)
