"""A hint to idle workers, sent after the commit that made jobs visible, on the connection that committed them.

NOTIFY inside the enqueuing transaction would take a lock of the whole database at its COMMIT, in which all committing
writers line up. After the commit that is short: the COMMIT of a transaction that only notifies waits for no disk. Hints
of one engine for one queue are ``DEBOUNCE`` seconds apart, though a few may follow each other at once; a worker that
hears one looks again so much later, so no job is left to its next poll. A hint that cannot be sent is forgotten:
polling finds the job.

``create_engine(..., execution_options={"sa_jobqueue_hints": False})`` turns hints off.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from sa_jobqueue.models import Models
from sa_jobqueue.statements import hint
from sa_jobqueue.wire import tell

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction

__all__ = ["DEBOUNCE", "Debounce", "hint_after_commit"]

DEBOUNCE = 0.03
_AT_ONCE = 3
_KEY = _OPTION = "sa_jobqueue_hints"
_MOST_QUEUES = 10_000


_listened_to: WeakSet[type[Session]] = WeakSet()


@dataclass(slots=True)
class _Pending:
    """What one session has to say after its commit."""

    connection: Connection
    channel: str
    queues: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Debounce:
    """Which hints of one engine to send: per queue one each ``DEBOUNCE`` seconds, and up to ``_AT_ONCE`` saved up.

    ``evenly`` is when the next one would be due if they came evenly, on the monotonic clock (the generic cell rate
    algorithm, ITU-T I.371). One that is held back is never later than ``DEBOUNCE`` after the last that was sent.
    """

    evenly: dict[str, float] = field(default_factory=dict)

    def due(self, queues: Iterable[str], now: float) -> list[str]:
        """Those of the queues whose hints are sent now."""
        due = [queue for queue in queues if now >= self.evenly.get(queue, now) - (_AT_ONCE - 1) * DEBOUNCE]
        if len(self.evenly) > _MOST_QUEUES:
            self.evenly.clear()
        self.evenly.update({queue: max(now, self.evenly.get(queue, now)) + DEBOUNCE for queue in due})
        return due


def hint_after_commit(session: Session, connection: Connection, models: Models, queues: Iterable[str]) -> None:
    """Tell the workers of these queues of new jobs, once the session's transaction has committed."""
    if _debounce(connection) is None:
        return
    _listen_to(type(session))
    pending: _Pending | None = session.info.get(_KEY)
    if pending is None or pending.connection is not connection:
        pending = session.info[_KEY] = _Pending(connection, hint.channel(models))
    pending.queues.update(queues)


def _listen_to(session_class: type[Session]) -> None:
    """Once for each class: to listen to a session takes longer than to make one. A sessionmaker's class is its own."""
    if session_class not in _listened_to:
        event.listen(session_class, "after_commit", _after_commit)
        event.listen(session_class, "after_transaction_end", _after_transaction_end)
        _listened_to.add(session_class)


def _after_commit(session: Session) -> None:
    """What was committed is committed: whatever becomes of the hint, the caller must not hear of it."""
    pending: _Pending | None = session.info.get(_KEY)
    if pending is not None and pending.queues and not session.in_nested_transaction():
        with suppress(Exception):
            _send(pending)
        pending.queues.clear()  # a class may be listened to with its base


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    pending: _Pending | None = session.info.get(_KEY)
    if pending is not None and transaction.parent is None:
        pending.queues.clear()


def _send(pending: _Pending) -> None:
    """Past SQLAlchemy, which would begin a transaction that the session knows nothing of."""
    driver: Any = pending.connection.connection
    debounce = _debounce(pending.connection)
    if debounce is None or driver.driver_connection.info.transaction_status is not TransactionStatus.IDLE:
        return
    if due := debounce.due(pending.queues, time.monotonic()):
        _notify(driver.dbapi_connection, [hint.notify(pending.channel, hint.mark(queue)) for queue in due])


def _notify(dbapi: Any, statements: list[str]) -> None:
    if isinstance(dbapi, psycopg.Connection):
        tell(dbapi, ";".join(statements).encode())
        return
    before = dbapi.autocommit
    dbapi.autocommit = True
    try:
        cursor = dbapi.cursor()
        for each in statements:
            cursor.execute(each)
        cursor.close()
    finally:
        dbapi.autocommit = before


def _debounce(connection: Connection) -> Debounce | None:
    """The memory of the connection's engine, kept in its options; None if they say no, or the driver is not psycopg."""
    if not connection.dialect.driver.startswith("psycopg"):
        return None
    known: Any = connection.engine.get_execution_options().get(_OPTION)
    if known is None:
        known = Debounce()
        connection.engine.update_execution_options(**{_OPTION: known})
    return known or None
