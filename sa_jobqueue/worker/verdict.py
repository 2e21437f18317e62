"""What becomes of a run: from the way its handler ended to what is recorded of the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.errors import (
    ArgumentsMismatch,
    CommitRefused,
    DuplicateEffect,
    LeaseLost,
    RejectJob,
    SnoozeJob,
    TimeLimitExceeded,
)
from sa_jobqueue.values import ClaimedJob, to_seconds
from sa_jobqueue.worker.run import Condemned

__all__ = ["Ending", "Verdict", "is_infrastructure", "judge"]


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

_TRANSIENT = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock detected
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
    return Verdict(Ending.FAIL, delay=backoff.delay(job.attempt), error=TimeLimitExceeded(job.id))


def _as_told(error: BaseException) -> Verdict | None:
    """What the queue, or the handler on purpose, said by its exception."""
    match error:
        case DuplicateEffect():
            return Verdict(Ending.DUPLICATE, error=error)
        case LeaseLost() if not isinstance(error, CommitRefused):
            return Verdict(Ending.LOST, error=error)
        case RejectJob():
            return Verdict(Ending.REJECT, error=error)
        case SnoozeJob(delay=delay):
            return Verdict(Ending.SNOOZE, delay=timedelta(seconds=to_seconds("delay", delay)), error=error)
        case _:
            return None


def _by_blame(error: BaseException, job: ClaimedJob, backoff: Backoff) -> Verdict:
    if is_infrastructure(error):
        return Verdict(Ending.SNOOZE, delay=_OUTAGES.delay(_given_back(job) + 1), error=error)
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
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return error.connection_invalidated
    if state == _IDLE_IN_TRANSACTION:
        return False
    return error.connection_invalidated or state in _TRANSIENT or state.startswith(_TRANSIENT_CLASSES)


def _given_back(job: ClaimedJob) -> int:
    """How many claims of this job were given back without an attempt: each one raised the token, not the attempt."""
    return max(job.token - job.attempt, 0)
