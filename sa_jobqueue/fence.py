"""The commit guard: a session cannot commit work that no live token covers.

Four things stop a root commit:

* a lease was found lost (:class:`LeaseLost` was raised, even if the caller swallowed it);
* an ack, or a claim, was made in a savepoint that was rolled back (the session's, or one of its connection): what
  followed relied on it;
* an effect turned out to be a duplicate;
* a run is expected to be settled in this transaction, and is not (the worker's handlers must not commit by themselves).

Only the end of the root transaction lifts it. The guard lives in ``session.info`` and in listeners on that one
session, so sessions that never touch a job pay nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, NestedTransaction, event
from sqlalchemy.orm import Session, SessionTransaction

from sa_jobqueue.errors import CommitRefused

__all__ = ["COMMITS_EARLY", "Fence", "fence_of", "listen", "put_up"]

_KEY = "sa_jobqueue.fence"
COMMITS_EARLY = (
    "the handler commits before its job is acknowledged. The worker commits the effect and the ack together; use "
    "begin_nested() for a part that may fail."
)


@dataclass(slots=True, eq=False)
class Fence:
    """What one session relies on in its current root transaction."""

    doom: tuple[int, str] | None = None
    expected: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    known_duplicates: set[int] = field(default_factory=set)
    reliances: list[tuple[int, int, str]] = field(default_factory=list)
    """What was done in savepoints: the number of the innermost, the job, the deed."""
    innermost: int = 0
    """The savepoint of the connection in which the last statement was sent; 0: none."""

    def follow(self, connection: Connection) -> None:
        """A statement is about to be sent. The connection knows all savepoints; the session knows only its own."""
        savepoint = connection.get_nested_transaction()
        self.innermost = 0 if savepoint is None else _number(_name(savepoint))
        if savepoint is not None and not event.contains(connection, "rollback_savepoint", self._on_rollback):
            event.listen(connection, "rollback_savepoint", self._on_rollback)

    def rely(self, job_id: int, deed: str) -> None:
        """Remember that ``deed`` was done for the job by the statement that was sent last."""
        if self.innermost:
            self.reliances.append((self.innermost, job_id, deed))

    def settle(self, job_id: int, deed: str) -> None:
        """The job has left its claim in this transaction."""
        self.rely(job_id, deed)
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
            raise CommitRefused(unsettled, COMMITS_EARLY)

    def ended(self, transaction: SessionTransaction) -> None:
        """A root that ended lifts the fence."""
        if transaction.parent is None:
            self.lift()

    def lift(self) -> None:
        """The root transaction has ended: nothing of it is left to rely on."""
        self.doom = None
        for memory in (self.settled, self.known_duplicates, self.reliances):
            memory.clear()

    def _on_rollback(self, _connection: Connection, name: str, _context: Any) -> None:
        """A savepoint that was made earlier and is still there holds all that came later, released or not."""
        for innermost, job_id, deed in self.reliances:
            if innermost >= _number(name):
                self.refuse(job_id, f"the {deed} of job {job_id} was made in a savepoint that was rolled back.")


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
    event.listen(target, "after_transaction_end", _after_transaction_end)


def _before_commit(session: Session) -> None:
    fence: Fence | None = session.info.get(_KEY)
    if fence is not None and not session.in_nested_transaction():
        fence.check()


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    fence: Fence | None = session.info.get(_KEY)
    if fence is not None:
        fence.ended(transaction)


def _name(savepoint: NestedTransaction) -> str:
    return savepoint._savepoint  # noqa: SLF001 - the only link to the name in the event


def _number(name: str) -> int:
    """A connection numbers its savepoints: ``sa_savepoint_1``, ``sa_savepoint_2``, and so on."""
    return int(name.rpartition("_")[2])
