"""Which server process a handler's transaction is in, and how long it may idle there.

Both are facts of a connection, so they are asked once in its life, before its transaction begins. Behind a pooler in
transaction mode they are facts of a transaction, and are asked at each begin: such a pooler is told by the process id
that the driver was given when it connected, which is then the pooler's invention.
"""

from __future__ import annotations

from typing import Any

from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, PoolProxiedConnection, text

__all__ = ["backend_of", "is_direct"]

_KEY = "sa_jobqueue.backend"
_POOLED = (0, "")
_SNAPSHOT = frozenset({"repeatable read", "serializable"})
_CHOSEN_SNAPSHOT = frozenset({IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE})
"""Levels at which a transaction keeps the snapshot of its first statement: the server's, and the driver's names."""
_PID = "SELECT pg_backend_pid()"
_BOUND = text(
    "SELECT pg_backend_pid(), current_setting('transaction_isolation'), "
    "CASE current_setting('idle_in_transaction_session_timeout') WHEN '0' "
    "THEN set_config('idle_in_transaction_session_timeout', :timeout, CAST(:local AS boolean)) END"
)


def backend_of(connection: Connection, idle_timeout: int) -> tuple[int, bool]:
    """The server process of the transaction that is about to begin, and whether that keeps one snapshot.

    ``idle_timeout`` is the ``idle_in_transaction_session_timeout`` in milliseconds that it gets, unless the server, the
    database or the role has set one.
    """
    known: tuple[int, str] | None = connection.info.get(_KEY)
    if known is None and _is_idle(connection):
        known = connection.info[_KEY] = _introduce(connection, idle_timeout)
    if known is None or known == _POOLED:
        pid, level = _bind(connection, idle_timeout, local=True)
        return pid, level in _SNAPSHOT
    pid, default = known
    chosen = getattr(connection.connection.driver_connection, "isolation_level", None)
    return pid, default in _SNAPSHOT if chosen is None else chosen in _CHOSEN_SNAPSHOT


def is_direct(connection: Connection | PoolProxiedConnection) -> bool:
    """Whether nobody hands the connection's server process round; False where :func:`backend_of` could not tell."""
    return connection.info.get(_KEY) not in {None, _POOLED}


def _is_idle(connection: Connection) -> bool:
    """Whether the driver, psycopg, has not begun a transaction yet; it does so with the first statement."""
    info = getattr(connection.connection.driver_connection, "info", None)
    idle = getattr(info, "transaction_status", None) is TransactionStatus.IDLE
    return idle and not _dbapi(connection).autocommit


def _introduce(connection: Connection, idle_timeout: int) -> tuple[int, str]:
    """The server process if the driver speaks to it directly, with its timeout set; else ``_POOLED``."""
    told: Any = connection.connection.driver_connection
    _dbapi(connection).autocommit = True
    try:
        if connection.exec_driver_sql(_PID).scalar_one() != told.info.backend_pid:
            return _POOLED
        return _bind(connection, idle_timeout, local=False)
    finally:
        _dbapi(connection).autocommit = False


def _bind(connection: Connection, idle_timeout: int, *, local: bool) -> tuple[int, str]:
    given = {"timeout": str(idle_timeout), "local": local}
    pid, level, _ = connection.execute(_BOUND, given).one()
    return pid, level


def _dbapi(connection: Connection) -> Any:
    return connection.connection.dbapi_connection
