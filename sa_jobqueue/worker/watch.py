"""What the worker overhears of a handler's transactions, by events on that handler's session alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.orm import Session

from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.verdict import is_aftermath

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction

__all__ = ["FirstErrors", "Watch"]

_BEGIN = (
    "SELECT pg_backend_pid(), current_setting('transaction_isolation') IN ('repeatable read', 'serializable'), "
    "CASE current_setting('idle_in_transaction_session_timeout') WHEN '0' "
    "THEN set_config('idle_in_transaction_session_timeout', %s, true) END"
)
"""Learn the server process, so that the run can be ended from outside, and whether the transaction keeps one snapshot;
bound how long a hung one keeps its locks."""


class FirstErrors:
    """Remembers for each run the database error that aborted its transaction, even if the handler swallows it.

    After that one, a connection answers only that its transaction is aborted; so the last error of any other kind is
    the first one of the transaction.
    """

    def __init__(self) -> None:
        self._runs: WeakKeyDictionary[Connection, Run] = WeakKeyDictionary()

    @contextmanager
    def listening(self, engines: Iterable[Engine]) -> Iterator[None]:
        """Hear the errors of these engines while the block runs."""
        heard = list(engines)
        for engine in heard:
            event.listen(engine, "handle_error", self._remember)
        try:
            yield
        finally:
            for engine in heard:
                event.remove(engine, "handle_error", self._remember)

    def follow(self, connection: Connection, run: Run) -> None:
        """Errors on this connection, which no other session will ever use, are those of ``run``."""
        self._runs[connection] = run

    def _remember(self, context: ExceptionContext) -> None:
        run = self._runs.get(context.connection) if context.connection is not None else None
        error = context.sqlalchemy_exception
        if run is not None and error is not None and not is_aftermath(error):
            run.first_error = error


class Watch:
    """Follows the transactions of one session for one run.

    Args:
        run: told which server process the handler's transaction is in, and whether it has committed.
        home: the engine of the jobs table; connections to other databases are none of the worker's business.
        idle_timeout: milliseconds of ``idle_in_transaction_session_timeout``, unless the server sets one.
        errors: follows the connection.
    """

    def __init__(self, run: Run, home: Engine, idle_timeout: int, errors: FirstErrors) -> None:
        self.closed = False
        """True if the session was closed, and so undone, before the run was committed or rolled back."""
        self._run, self._home, self._idle_timeout, self._errors = run, home, idle_timeout, errors
        self._answered = False

    def follow(self, session: Session) -> None:
        """Listen to the session until it is gone."""
        listeners: dict[str, Callable[..., None]] = {
            "after_begin": self._after_begin,
            "before_commit": self._before_commit,
            "after_commit": self._after_commit,
            "after_rollback": self._after_rollback,
            "after_transaction_end": self._after_transaction_end,
        }
        for name, listener in listeners.items():
            event.listen(session, name, listener)

    def _after_begin(self, _session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        if transaction.nested or connection.engine.pool is not self._home.pool:
            return
        self._run.open(getattr(connection.connection.driver_connection, "fileno", None))
        backend, keeps_snapshot, _ = connection.exec_driver_sql(_BEGIN, (str(self._idle_timeout),)).one()
        self._run.attach(backend, keeps_snapshot=keeps_snapshot)
        self._errors.follow(connection, self._run)
        event.listen(connection, "rollback", self._before_rollback)

    def _before_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._run.committing = True

    def _before_rollback(self, _connection: Connection) -> None:
        """A session that is closed rolls back too, but says so only when others may have its connection already."""
        self._run.detach()

    def _after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._answered = True
            self._run.detach(committed=True)

    def _after_rollback(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._answered = True

    def _after_transaction_end(self, _session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self.closed = self.closed or not self._answered
            self._answered = False
