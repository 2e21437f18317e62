"""What becomes of a run: from the way its handler ended to what is recorded of the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import psycopg
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import (
    ArgumentsMismatch,
    CommitRefused,
    DuplicateEffect,
    InvalidArgument,
    LeaseLost,
    RejectJob,
    SnapshotOutlivedLease,
    SnoozeJob,
    TimeLimitExceeded,
)
from sa_jobqueue.values import ClaimedJob, to_seconds
from sa_jobqueue.worker.poolers import is_mixed_up
from sa_jobqueue.worker.run import Condemned

__all__ = ["Ending", "Verdict", "is_aftermath", "is_broken", "is_infrastructure", "is_outage", "judge", "root_cause"]


class Ending(StrEnum):
    """The ways in which a run ends."""

    DONE = "done"
    DUPLICATE = "duplicate"
    LOST = "lost"
    FAIL = "fail"
    REJECT = "reject"
    SNOOZE = "snooze"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An ending, with the wait before the next try and the error that is recorded."""

    ending: Ending
    delay: timedelta | None = None
    error: BaseException | None = None

    undecodable: bool = False
    """True if the stored arguments do not fit the handler: an older or newer release may know them."""


_OUTAGES = Backoff(base=0.5, cap=30.0, jitter=0.5)
_CONFLICTS = Backoff(base=0.05, cap=5.0, jitter=0.25)
"""Other transactions were in the way, and are over."""

_CONFLICT = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock detected
    }
)
_TRANSIENT = _CONFLICT | frozenset(
    {
        "55P03",  # lock timeout
        "57014",  # statement timeout
        "57P01",  # server is shutting down, or somebody terminated this session
        "57P02",  # crash of another backend
        "57P03",  # cannot connect now
        "57P05",  # idle session timeout
    }
)
_TRANSIENT_CLASSES = ("08", "53")
"""Connection exceptions, insufficient resources."""
_IDLE_IN_TRANSACTION = "25P03"
_ABORTED = "25P02"
"""What the server answers to every statement after the one that failed."""


def judge(
    error: BaseException | None, job: ClaimedJob, backoff: Backoff, condemned: Condemned | None = None
) -> Verdict:
    """The verdict over a run that ended with ``error`` (None: its transaction committed)."""
    if error is None:
        return Verdict(Ending.DONE)
    if condemned is not None:
        return _of_condemned(condemned, error, job, backoff)
    return _as_told(error) or _by_blame(error, job, backoff)


def _of_condemned(condemned: Condemned, error: BaseException, job: ClaimedJob, backoff: Backoff) -> Verdict:
    if condemned is Condemned.LEASE_LOST:
        return Verdict(Ending.LOST, error=error)
    if condemned is Condemned.STOPPED:
        return Verdict(Ending.RELEASE, error=error)
    too_long = SnapshotOutlivedLease(job.id) if condemned is Condemned.SNAPSHOT else TimeLimitExceeded(job.id)
    return Verdict(Ending.FAIL, delay=backoff.delay(job.attempt), error=too_long)


def _as_told(error: BaseException) -> Verdict | None:
    """What the queue, or the handler on purpose, said by its exception."""
    match error:
        case DuplicateEffect():
            return Verdict(Ending.DUPLICATE, error=error)
        case LeaseLost() if not isinstance(error, CommitRefused):
            return Verdict(Ending.LOST, error=error)
        case RejectJob():
            return Verdict(Ending.REJECT, error=error)
        case SnoozeJob():
            return _snoozed(error)
        case _:
            return None


def _snoozed(error: SnoozeJob) -> Verdict | None:
    """None for a delay that is none: then the handler has failed."""
    try:
        return Verdict(Ending.SNOOZE, delay=timedelta(seconds=to_seconds("delay", error.delay)), error=error)
    except InvalidArgument:
        return None


def _by_blame(error: BaseException, job: ClaimedJob, backoff: Backoff) -> Verdict:
    if is_infrastructure(error) or is_mixed_up(error):
        waits = _CONFLICTS if _is_conflict(error) else _OUTAGES
        return Verdict(Ending.SNOOZE, delay=waits.delay(_given_back(job) + 1), error=error)
    undecodable = isinstance(error, ArgumentsMismatch)
    return Verdict(Ending.FAIL, delay=backoff.delay(job.attempt), error=error, undecodable=undecodable)


def is_infrastructure(error: BaseException) -> bool:
    """True if the database, not the job, is to blame: such a run spends no attempt.

    A handler that outlived ``idle_in_transaction_session_timeout`` is to blame itself: it would do so again.
    """
    if isinstance(error, PoolTimeout):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = _state(error)
    if state is None:
        # A connection that could not be made has neither a state nor anything to invalidate.
        return error.connection_invalidated or isinstance(error.orig, psycopg.OperationalError)
    if state == _IDLE_IN_TRANSACTION:
        return False
    return error.connection_invalidated or state in _TRANSIENT or state.startswith(_TRANSIENT_CLASSES)


def is_broken(error: BaseException) -> bool:
    """Whether the database went away, rather than refused a statement; a COMMIT may have reached it or not."""
    if not is_infrastructure(error):
        return False
    return not isinstance(error, DBAPIError) or error.connection_invalidated or _state(error) is None


def is_outage(error: BaseException) -> bool:
    """:func:`is_infrastructure` for the worker's own transactions: if one of them idled, the process was paused."""
    return is_infrastructure(error) or (isinstance(error, DBAPIError) and _state(error) == _IDLE_IN_TRANSACTION)


def is_aftermath(error: BaseException) -> bool:
    """True if the error says only that an earlier one has ended the transaction."""
    return isinstance(error, PendingRollbackError) or (isinstance(error, DBAPIError) and _state(error) == _ABORTED)


def root_cause(error: BaseException | None, first: BaseException | None) -> BaseException | None:
    """The error to blame for a run that ended with ``error``: ``first`` if the handler had swallowed that one.

    A flush may also fail for reasons of its own; SQLAlchemy quotes the reason in the error that follows. After a commit
    that was refused it quotes none.
    """
    if error is None or first is None or not is_aftermath(error):
        return error
    if isinstance(error, PendingRollbackError) and not isinstance(first, CommitRefused):
        return first if str(first) in str(error) else error
    return first


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and _state(error) in _CONFLICT


def _state(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state


def _given_back(job: ClaimedJob) -> int:
    """How many claims of this job were given back without an attempt: each one raised the token, not the attempt."""
    return max(job.token - job.attempt, 0)
