"""What the worker overhears of a handler's transactions, by events on its session and on the application's engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.orm import Session

from sa_jobqueue.errors import JobQueueError, UnsupportedDatabase
from sa_jobqueue.wire import begin, in_autocommit
from sa_jobqueue.worker.backend import backend_of
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.verdict import is_aftermath

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction
    from sqlalchemy.pool import ConnectionPoolEntry

__all__ = ["Overheard", "Watch", "follow", "listen"]

_KEY = "sa_jobqueue.watch"
_COMMITS_BY_ITSELF = (
    "the handler's connection is in isolation level AUTOCOMMIT, where each statement commits by itself, before the job "
    "is acknowledged; use another level for the handler, and a connection of its own for what must be in none"
)


class Overheard:
    """Which watch each connection of the application belongs to at this moment.

    After the error that aborts a transaction, its connection answers only that it is aborted; so the last error of any
    other kind is the first one of the transaction, even if the handler swallowed it.
    """

    def __init__(self) -> None:
        self._watches: WeakKeyDictionary[Connection, Watch] = WeakKeyDictionary()

    @contextmanager
    def listening(self, engines: Iterable[Engine]) -> Iterator[None]:
        """Hear what happens on the connections of these engines while the block runs."""
        heard = list(engines)
        for engine in heard:
            event.listen(engine, "handle_error", self._remember)
            event.listen(engine, "checkin", self._given_back)
        try:
            yield
        finally:
            for engine in heard:
                event.remove(engine, "handle_error", self._remember)
                event.remove(engine, "checkin", self._given_back)

    def belongs(self, connection: Connection, watch: Watch) -> None:
        """What happens on this connection, which no other session will ever use, is told to ``watch``.

        Two entries: the pool knows only ``info``, and a connection that broke has none when its error is told.
        """
        self._watches[connection] = connection.info[_KEY] = watch

    def _remember(self, context: ExceptionContext) -> None:
        connection = context.connection
        watch = None if connection is None else getattr(connection, "watch", None) or self._watches.get(connection)
        error = context.sqlalchemy_exception
        if watch is not None and error is not None and not is_aftermath(error):
            watch.failed(error)

    def _given_back(self, _driver: object, record: ConnectionPoolEntry) -> None:
        """A session that is closed says so only when others may have its connection already."""
        watch: Watch | None = record.info.pop(_KEY, None)
        if watch is not None:
            watch.detach()


class Watch:
    """Follows the transactions of one session, or connection, for the runs that share it.

    Args:
        runs: told which server process the handler's transaction is in, and whether it has committed.
        home: the engine of the jobs table; connections to other databases are none of the worker's business.
        idle_timeout: milliseconds of ``idle_in_transaction_session_timeout``, unless the server sets one.
        overheard: told of the session's connections.
    """

    def __init__(self, runs: Sequence[Run], home: Engine, idle_timeout: int, overheard: Overheard) -> None:
        self.closed = False
        """True if the session was closed, and so undone, before the runs were committed or rolled back."""
        self._runs, self._home, self._idle_timeout, self._overheard = runs, home, idle_timeout, overheard
        self.elsewhere = False
        """True if the session has connections to other databases too, which it will commit in whatever order."""
        self._answered = False
        self.disturbed = False
        """True if something was undone that the runs had done: a transaction, or an object of the session."""

    @property
    def expected(self) -> list[int]:
        """Ids of the jobs that are to be settled in this session's transaction."""
        return [run.job.id for run in self._runs]

    def failed(self, error: BaseException) -> None:
        """A statement of the session has failed."""
        for run in self._runs:
            run.first_error = error

    def detach(self, *, committed: bool = False) -> None:
        """The session's transaction is over."""
        for run in self._runs:
            run.detach(committed=committed)

    def begun(self, connection: Connection) -> None:
        """The session has begun a transaction on this connection."""
        if connection.engine.pool is self._home.pool:
            self._overheard.belongs(connection, self)
            self.begun_at_home(connection)
        else:
            self.elsewhere = True

    def begun_at_home(self, connection: Connection) -> None:
        """A transaction was begun on this connection to the database of the jobs.

        Who ends a run from outside ends the server process that it is in. There was none if it came too early.

        Raises:
            UnsupportedDatabase: it is none, since each statement would commit by itself; nothing was sent.
            JobQueueError: the run was given up.
        """
        if in_autocommit(connection):
            raise UnsupportedDatabase(_COMMITS_BY_ITSELF)
        for run in self._runs:
            run.open(connection.connection.driver_connection)
        pid, keeps_snapshot = backend_of(connection, self._idle_timeout)
        for run in self._runs:
            run.attach(pid, keeps_snapshot=keeps_snapshot)
        if given_up := next((run for run in self._runs if run.condemned), None):
            msg = f"the run of job {given_up.job.id} was given up before this transaction began: {given_up.condemned}"
            raise JobQueueError(msg)
        begin(connection)

    def committing(self) -> None:
        """The root transaction is about to be committed."""
        for run in self._runs:
            run.committing = True

    def committed(self) -> None:
        """The root transaction has committed."""
        self._answered = True
        self.detach(committed=True)

    def rolled_back(self) -> None:
        """The root transaction was rolled back."""
        self._answered = self.disturbed = True

    def ended(self) -> None:
        """The session's root transaction is over, one way or the other."""
        self.closed = self.closed or not self._answered
        self._answered = False


def follow(session: Session, watch: Watch, *, heard: bool = False) -> None:
    """Tell ``watch`` of the session; ``heard`` says that its class is listened to already."""
    session.info[_KEY] = watch
    if not heard:
        listen(session)


def listen(target: Session | type[Session]) -> None:
    """Let the watches of one session, or of all sessions of a class, hear what those do."""
    event.listen(target, "after_begin", _after_begin)
    event.listen(target, "before_commit", _before_commit)
    event.listen(target, "after_commit", _after_commit)
    event.listen(target, "after_rollback", _after_rollback)
    event.listen(target, "pending_to_transient", _after_loss)
    event.listen(target, "persistent_to_detached", _after_loss)
    event.listen(target, "after_transaction_end", _after_transaction_end)


def _after_loss(session: Session, _instance: object) -> None:
    """An object has left the session, and took with it what was not flushed."""
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None:
        watch.disturbed = True


def _after_begin(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None and not transaction.nested:
        watch.begun(connection)


def _before_commit(session: Session) -> None:
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None and not session.in_nested_transaction():
        watch.committing()


def _after_commit(session: Session) -> None:
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None and not session.in_nested_transaction():
        watch.committed()


def _after_rollback(session: Session) -> None:
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None and not session.in_nested_transaction():
        watch.rolled_back()


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    watch: Watch | None = session.info.get(_KEY)
    if watch is not None and transaction.parent is None:
        watch.ended()
