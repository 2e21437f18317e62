"""The state machine as data: code, docs and tests all read this table.

A finished job has no row. ``visible_at`` means one thing in every state: the instant from which the row may be
claimed (runnable since, due time, or lease expiry).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TRANSITIONS", "DeathReason", "Outcome", "State", "Transition"]


class State(StrEnum):
    """States of a live row in ``jobqueue_job``."""

    QUEUED = "queued"
    SCHEDULED = "scheduled"
    CLAIMED = "claimed"


class DeathReason(StrEnum):
    """Why a job moved to ``jobqueue_dead_letter``."""

    FAILED = "failed"
    LEASE_EXPIRED = "lease_expired"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNDECODABLE = "undecodable"


class Outcome(StrEnum):
    """How one run ended, as the job log and the rollup count it."""

    DONE = "done"
    DUPLICATE = "duplicate"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    RELEASED = "released"
    REQUEUED = "requeued"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the state table; ``None`` stands for "no live row"."""

    source: State | None
    target: State | None
    verb: str
    who: str
    notes: str = ""
    buried: bool = False
    """True if the job becomes a dead letter (``source`` is None: it comes from the dead letters)."""


_Q, _S, _C = State.QUEUED, State.SCHEDULED, State.CLAIMED

TRANSITIONS = (
    Transition(None, _Q, "enqueue", "caller's transaction"),
    Transition(None, _S, "enqueue", "caller's transaction", "a delay or a time was given"),
    Transition(_S, _Q, "promote", "sweep", "due"),
    Transition(_Q, _C, "claim", "worker or service", "attempt + 1, token + 1, visible_at = now + visibility timeout"),
    Transition(_S, _C, "claim", "service", "due; claim() needs no sweep"),
    Transition(_C, _C, "claim", "service", "lease expired; counted as re-queued, attempt + 1, token + 1"),
    Transition(_C, _C, "heartbeat", "heartbeat thread", "only with the live token; visible_at moves on"),
    Transition(_C, _Q, "re-queue", "sweep", "lease expired; counted"),
    Transition(_C, _Q, "release", "graceful stop", "attempt - 1, in its old place"),
    Transition(_C, _S, "fail", "worker or service", "backoff with jitter"),
    Transition(_C, _S, "snooze", "worker or service", "attempt - 1"),
    Transition(_C, None, "ack", "handler's transaction", "row deleted, dedup row written by the same statement"),
    Transition(_C, None, "fail", "worker or service", "last attempt", buried=True),
    Transition(_C, None, "expire", "sweep or claim", "lease expired on the last attempt", buried=True),
    Transition(_C, None, "reject", "worker or service", "no further attempt", buried=True),
    Transition(None, _Q, "redrive", "operator", "attempts start again, token and dedup key stay", buried=True),
    *(Transition(state, None, "cancel", "operator", "or gone, if asked", buried=True) for state in State),
)
