"""What stands before every step: the right server, a short wait for tables, and one migration at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.errors import MigrationBlocked, UnsupportedDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["require_postgresql", "short_lock_timeout", "wait_for_turn"]

LOCK_NOT_AVAILABLE: Final = "55P03"

# Plain statements with literals, so that an SQL script carries them too. The old value is remembered on the server
# because in a script there is no other place. Both end with the transaction, so no error has to undo them.
_REMEMBER: Final = "SELECT set_config('sa_jobqueue.lock_timeout', current_setting('lock_timeout'), true)"
_RESTORE: Final = (
    "SELECT set_config('lock_timeout', coalesce(nullif(current_setting('sa_jobqueue.lock_timeout', true), ''), "
    "current_setting('lock_timeout')), true)"
)
_SHORT: Final = (
    "SELECT set_config('lock_timeout', CASE current_setting('lock_timeout') WHEN '0' THEN '3s' "
    "ELSE current_setting('lock_timeout') END, true)"
)
_PATIENT: Final = "SELECT set_config('lock_timeout', '60s', true)"
_TURN: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('sa_jobqueue migrations', 0))")
_TRANSACTION: Final = text(
    "SELECT current_setting('transaction_isolation'), coalesce(current_setting('sa_jobqueue.lock_timeout', true), '')"
)


def require_postgresql(dialect: str) -> None:
    """Refuse any other database before a statement is sent.

    Raises:
        UnsupportedDatabase: it is not PostgreSQL.
    """
    if dialect != "postgresql":
        msg = (
            f"the queue's migrations are for PostgreSQL; this is {dialect}. Skip them there; unit tests on another "
            f"database can use metadata.create_all"
        )
        raise UnsupportedDatabase(msg)


@contextmanager
def short_lock_timeout(execute: Callable[[str], object]) -> Iterator[None]:
    """Give up on a table lock after 3 seconds, or after the session's own ``lock_timeout`` if it has one.

    Whoever waits for a strong lock makes every claim wait behind it: this is the longest pause that a migration
    can cause.

    Raises:
        MigrationBlocked: if the time was over. The transaction is lost; roll it back.
    """
    execute(_REMEMBER)
    execute(_SHORT)
    with _advice(
        "another transaction holds a lock on a table of the queue, and waiting for it would have stopped all claims. "
        "Run the migration again when that transaction is over: pg_stat_activity shows it as the oldest xact_start"
    ):
        yield
    execute(_RESTORE)


def wait_for_turn(connection: Connection) -> None:
    """Hold, until the transaction ends, the lock that only one migration of this package can hold in a database.

    Raises:
        MigrationBlocked: if another one held it for a minute.
        UnsupportedDatabase: if the transaction would not see what the one before it has committed.
    """
    connection.execute(text(_REMEMBER))
    connection.execute(text(_PATIENT))
    with _advice("another process has been migrating for a minute. Wait for it, or look for it in pg_stat_activity"):
        connection.execute(_TURN)
    _check_transaction(connection)
    connection.execute(text(_RESTORE))


def _check_transaction(connection: Connection) -> None:
    # Under AUTOCOMMIT the lock is gone with its statement; a transaction-local setting goes the same way and tells.
    # A REPEATABLE READ snapshot is taken before the wait for the lock, and misses what was made meanwhile.
    isolation, remembered = connection.execute(_TRANSACTION).one()
    if isolation != "read committed" or not remembered:
        found = isolation if remembered else "autocommit"
        msg = f"migrations need a READ COMMITTED transaction; this connection is in {found}. Hand over the Engine"
        raise UnsupportedDatabase(msg)


@contextmanager
def _advice(message: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if _sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        msg = f"nothing was migrated: {message}."
        raise MigrationBlocked(msg) from error


def _sqlstate(error: DBAPIError) -> str | None:
    # psycopg and asyncpg name it sqlstate, psycopg2 pgcode
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
