"""The commit guard: a session cannot commit work that no live token covers.

Four things stop a root commit:

* a lease was found lost (:class:`LeaseLost` was raised, even if the caller swallowed it);
* an ack, or a claim, was made in a savepoint that was rolled back: what followed relied on it;
* an effect turned out to be a duplicate;
* a run is expected to be settled in this transaction, and is not (the worker's handlers must not commit by themselves).

Only the end of the root transaction lifts it. The guard lives in ``session.info`` and in listeners on that one
session, so sessions that never touch a job pay nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from sa_jobqueue.errors import CommitRefused

__all__ = ["Fence", "fence_of", "listen", "put_up"]

_KEY = "sa_jobqueue.fence"


@dataclass(slots=True)
class Fence:
    """What one session relies on in its current root transaction."""

    doom: tuple[int, str] | None = None
    expected: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    known_duplicates: set[int] = field(default_factory=set)
    released: set[SessionTransaction] = field(default_factory=set)
    reliances: list[tuple[SessionTransaction, int, str]] = field(default_factory=list)

    def rely(self, session: Session, job_id: int, deed: str) -> None:
        """Remember that ``deed`` was done for the job in the session's innermost transaction."""
        transaction = session.get_nested_transaction() or session.get_transaction()
        if transaction is not None:
            self.reliances.append((transaction, job_id, deed))

    def settle(self, session: Session, job_id: int, deed: str) -> None:
        """The job has left its claim in this transaction."""
        self.rely(session, job_id, deed)
        self.settled.add(job_id)

    def refuse(self, job_id: int, reason: str) -> None:
        """Refuse every commit until the root transaction has ended; the first reason is kept."""
        self.doom = self.doom or (job_id, reason)

    def check(self) -> None:
        """Raise :class:`CommitRefused` unless the root transaction may commit."""
        if self.doom is not None:
            job_id, reason = self.doom
            raise CommitRefused([job_id], reason)
        if unsettled := self.expected - self.settled:
            raise CommitRefused(
                unsettled,
                "the handler commits before its job is acknowledged. The worker commits the effect and the ack "
                "together; use session.begin_nested() for a part that may fail.",
            )

    def ended(self, transaction: SessionTransaction) -> None:
        """A root that ended lifts the fence; a savepoint that was not released never happened."""
        if transaction.parent is None:
            self._reset()
        elif transaction.nested and transaction not in self.released:
            self._undo(transaction)

    def _undo(self, savepoint: SessionTransaction) -> None:
        for transaction, job_id, deed in self.reliances:
            if savepoint in _lineage(transaction):
                self.refuse(job_id, f"the {deed} of job {job_id} was made in a savepoint that was rolled back.")

    def _reset(self) -> None:
        self.doom = None
        for memory in (self.settled, self.known_duplicates, self.released, self.reliances):
            memory.clear()


def fence_of(session: Session) -> Fence:
    """The session's fence, put up at its first use."""
    fence: Fence | None = session.info.get(_KEY)
    if fence is None:
        fence = Fence()
        put_up(session, fence)
    return fence


def put_up(session: Session, fence: Fence, *, heard: bool = False) -> None:
    """Guard the session; ``heard`` says that its class is listened to already."""
    session.info[_KEY] = fence
    if not heard:
        listen(session)


def listen(target: Session | type[Session]) -> None:
    """Let the fences of one session, or of all sessions of a class, hear what those do."""
    event.listen(target, "before_commit", _before_commit)
    event.listen(target, "after_commit", _after_commit)
    event.listen(target, "after_transaction_end", _after_transaction_end)


def _before_commit(session: Session) -> None:
    fence: Fence | None = session.info.get(_KEY)
    if fence is not None and not session.in_nested_transaction():
        fence.check()


def _after_commit(session: Session) -> None:
    fence: Fence | None = session.info.get(_KEY)
    savepoint = session.get_nested_transaction()
    if fence is not None and savepoint is not None:
        fence.released.add(savepoint)


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    fence: Fence | None = session.info.get(_KEY)
    if fence is not None:
        fence.ended(transaction)


def _lineage(transaction: SessionTransaction | None) -> Iterator[SessionTransaction]:
    while transaction is not None:
        yield transaction
        transaction = transaction.parent
