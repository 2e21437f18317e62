"""The connections of Core handlers: the application's own, with the worker's ears and the commit guard on them.

With a listener for events of an engine, SQLAlchemy asks for listeners at each statement of each connection, which takes
a fifth of a short transaction. So the worker connects by a subclass that hears where those events would be fired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.orm import Session

from sa_jobqueue.errors import CommitRefused, JobQueueError
from sa_jobqueue.fence import COMMITS_EARLY
from sa_jobqueue.worker.closing import acknowledge_with_commit
from sa_jobqueue.worker.hand import Hand, is_unheard
from sa_jobqueue.worker.line import most_connections
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.scopes import Books, alone
from sa_jobqueue.worker.watch import Watch

__all__ = ["ConnectionScope", "ConnectionSource", "connections_of"]


class _Guarded(Connection):
    """Does what a connection does, but commits nothing before its jobs are acknowledged.

    Until a watch is there it is the application's: listeners may use it as soon as it is made.
    """

    hand: Hand
    watch: Watch | None = None
    acknowledged = False
    refused = False
    """True once a commit was refused: that transaction is lost, and whoever swallows the error may not have noticed."""

    def guard(self, watch: Watch) -> None:
        """Let ``watch`` follow what happens, and refuse commits."""
        self.watch = watch
        if self.in_transaction():
            watch.begun_at_home(self)

    def begin(self) -> RootTransaction:
        """Begin, by itself or before the first statement: the worker knows then which server process that is in."""
        transaction = super().begin()
        if self.watch is not None:
            try:
                self.watch.begun_at_home(self)
            except BaseException:
                transaction.rollback()
                raise
        return transaction

    def begin_twophase(self, xid: Any = None) -> NoReturn:  # noqa: ARG002 (SQLAlchemy's parameters)
        """Refused: what is prepared outlives the worker, and so its lease."""
        msg = "the connection of a handler has no two-phase transactions: the worker commits it, with the ack"
        raise JobQueueError(msg)

    def close(self) -> None:
        """Close; the server process may belong to others from now on."""
        if self.watch is not None:
            self.watch.detach()
        super().close()

    def _commit_impl(self) -> None:
        if self.watch is None:
            super()._commit_impl()
            return
        try:
            self._commit_acknowledged(self.watch)
        except BaseException:
            self._rollback_impl()  # SQLAlchemy takes the transaction for ended, and would give it to the pool as it is
            raise

    def _commit_acknowledged(self, watch: Watch) -> None:
        if not self.acknowledged:
            self.refused = True
            refusal = CommitRefused(watch.expected, COMMITS_EARLY)
            watch.failed(refusal)
            raise refusal
        watch.committing()
        super()._commit_impl()
        self.acknowledged = False
        watch.committed()

    def _rollback_impl(self) -> None:
        super()._rollback_impl()
        self.acknowledged = False
        if self.watch is not None:
            self.watch.rolled_back()


@dataclass(slots=True)
class ConnectionScope:
    """Handlers on one connection."""

    connection: _Guarded
    watch: Watch
    books: Books
    what: ClassVar[str] = "connection"

    @property
    def closed(self) -> bool:
        """One that is broken is not closed."""
        return self.connection.closed

    @property
    def over(self) -> bool:
        """A connection that was closed stays so."""
        return self.closed

    def keep(self) -> None:
        """Nothing waits: a statement is sent when it is executed."""

    def settle(self, runs: Sequence[Run]) -> None:
        """Acknowledge in a transaction, also if the handlers needed none."""
        if self.connection.refused:
            raise CommitRefused(self.watch.expected, COMMITS_EARLY)
        if not self.connection.in_transaction():
            self.connection.begin()
        for run in runs:
            run.settling = True
        if not self._settle_with_commit(runs):
            with Session(self.connection, join_transaction_mode="rollback_only") as session:
                self.books.write(session, runs)
        self.connection.acknowledged = True

    def commit(self) -> None:
        """Commit, with savepoints that a handler has left open, and let the connection go in the same breath."""
        self.connection.commit()
        self.connection.hand.keep(self.connection.connection)
        self.connection.close()

    def _settle_with_commit(self, runs: Sequence[Run]) -> bool:
        job = alone(runs)
        return job is not None and acknowledge_with_commit(self.connection, job, self.books.last_word)


@dataclass(frozen=True)
class ConnectionSource:
    """Connects to ``home``.

    Args:
        engine: makes connections that can be guarded; they come from the pool of ``home``.
        spare: that pool has more connections than there are handlers, so one may be kept for the next job.
    """

    engine: Engine
    home: Engine
    spare: bool

    def open(self, hand: Hand) -> Connection:
        """A ``Connection``."""
        kept = self._kept(hand)
        return self._opened(self.engine.connect(), hand) if kept is None else kept

    async def aopen(self, hand: Hand) -> AsyncConnection:
        """An ``AsyncConnection``."""
        kept = self._kept(hand)
        if kept is not None:
            return AsyncConnection(self._later, kept)
        connection = await self._later.connect()
        self._opened(connection.sync_connection, hand)
        return connection

    def scope(self, given: Any, watch: Watch, books: Books) -> ConnectionScope:
        """Let ``watch`` follow the connection, and guard its commits."""
        connection: _Guarded = getattr(given, "sync_connection", given)
        connection.guard(watch)
        return ConnectionScope(connection, watch, books)

    async def ascope(self, given: Any, watch: Watch, books: Books) -> ConnectionScope:
        """A listener of the application may have begun the transaction, of which ``watch`` asks the server then."""
        if not given.in_transaction():
            return self.scope(given, watch, books)
        scope: ConnectionScope = await given.run_sync(lambda _: self.scope(given, watch, books))
        return scope

    def forget(self) -> None:
        """The pool has it again."""

    @cached_property
    def _later(self) -> AsyncEngine:
        return AsyncEngine(self.engine)

    def _kept(self, hand: Hand) -> _Guarded | None:
        pooled = hand.take()
        if pooled is None:
            return None
        connection = _Guarded(self.engine, pooled)
        connection.hand = hand
        return connection

    def _opened(self, connection: Any, hand: Hand) -> _Guarded:
        guarded: _Guarded = connection
        guarded.hand = hand
        hand.opened(may_keep=self.spare and is_unheard(self.engine))
        return guarded


def connections_of(home: Engine, concurrency: int) -> ConnectionSource:
    """The source for an engine, sync or async; connections have its pool, listeners and settings."""
    engine = home.execution_options()
    engine._connection_cls = _Guarded  # noqa: SLF001 - an AsyncEngine knows no other way to connect
    return ConnectionSource(engine, home, spare=most_connections(home.pool) > concurrency)
