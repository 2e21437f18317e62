"""The ack of a single run on its way with the COMMIT: one message to the server, one answer.

The ack is the last statement before the COMMIT anyway, and most of what both cost is the way there and back. Nothing is
lost by not waiting between them, since the server does not go on in a message after an error: a stale token or an
effect that exists already is an error of this ack (``settle.ack_or_error``), so the COMMIT behind it is not reached.

The message names the statement as the driver has prepared it. Where that cannot be (the first time on a connection,
behind a pooler, if others want to be told of the COMMIT), the ack is sent alone, and the COMMIT follows as ever.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.errors import InvalidTextRepresentation
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.types.numeric import Int8
from sqlalchemy import Connection, Executable, RootTransaction, event

from sa_jobqueue.errors import DuplicateEffect, LeaseLost
from sa_jobqueue.fence import fence_of
from sa_jobqueue.statements import settle
from sa_jobqueue.wire import as_sent, in_autocommit, is_listened_to, on_driver, speaks_psycopg, tell
from sa_jobqueue.worker.backend import is_direct

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from sa_jobqueue.models import Models
    from sa_jobqueue.values import ClaimedJob

__all__ = ["acknowledge_at_commit"]

_BIGINT = psycopg.adapters.types["int8"].oid


def acknowledge_at_commit(
    session: Session, models: Models, job: ClaimedJob, *, natural_keys_only: bool, job_log: bool
) -> bool:
    """Let the session's next commit acknowledge the job; False, and nothing is done, where that is not possible.

    That commit raises :class:`LeaseLost` or :class:`DuplicateEffect` instead of committing.
    """
    connection = session.connection(bind_arguments={"mapper": models.job})
    fence = fence_of(session)
    if session.twophase or job.id in fence.known_duplicates or not _may_wait(connection):
        return False
    statement = settle.ack_or_error(models, natural_keys_only=natural_keys_only, log=job_log)
    fence.follow(connection)
    fence.settle(job.id, "ack")
    _hear_commits(connection)
    _closings[connection] = _Closing(job, statement)
    return True


_closings: WeakKeyDictionary[Connection, _Closing] = WeakKeyDictionary()
"""What is to be said at the commit of each connection, which no other session will ever use."""


def _may_wait(connection: Connection) -> bool:
    """Whether what is sent in the event of this connection's commit is the last before that commit."""
    return (
        type(connection.get_transaction()) is RootTransaction
        and not connection.in_nested_transaction()
        and speaks_psycopg(connection)
        and not in_autocommit(connection)
        and not is_listened_to(connection)
    )


def _hear_commits(connection: Connection) -> None:
    """For good: a handler that the worker has given up may come back, and commit, after the worker has ended."""
    if not event.contains(connection.engine, "commit", _at_commit):
        event.listen(connection.engine, "commit", _at_commit)


def _at_commit(connection: Connection) -> None:
    closing = _closings.pop(connection, None)
    if closing is not None:
        closing.say(connection)


@dataclass(frozen=True, slots=True)
class _Closing:
    """The ack of one job, and the COMMIT where both go together."""

    job: ClaimedJob
    statement: Executable

    def say(self, connection: Connection) -> None:
        """Acknowledge, and commit if possible; the driver finds nothing left to commit then."""
        alone = len(connection.dispatch.commit) == 1
        together = alone and is_direct(connection)
        sql, values = as_sent(self.statement, {"for_id": Int8(self.job.id), "for_token": Int8(self.job.token)})
        with on_driver(connection, sql, values):
            try:
                self._send(connection, sql, values, together=together)
            except BaseException as error:  # noqa: BLE001 - it is raised again, or what it means
                _roll_back(connection)
                raise self._meant_by(error) from None

    def _send(self, connection: Connection, sql: str, values: Any, *, together: bool) -> None:
        pooled: Any = connection.connection
        if connection.dialect.is_async:
            pooled.dbapi_connection.run_async(partial(self._say_async, sql, values, together=together))
        else:
            self._say(sql, values, pooled.dbapi_connection, together=together)

    def _say(self, sql: str, values: Any, driver: Any, *, together: bool) -> None:
        name = _prepared_as(driver, sql) if together else None
        if name is None:
            driver.execute(sql, values, prepare=together or None)
            return
        begin = b"BEGIN; " if driver.pgconn.transaction_status == TransactionStatus.IDLE else b""
        tell(driver, begin + self._message(name))

    async def _say_async(self, sql: str, values: Any, driver: Any, *, together: bool) -> None:
        name = _prepared_as(driver, sql) if together else None
        if name is None:
            await driver.execute(sql, values, prepare=together or None)
        else:
            await driver.execute(self._message(name), prepare=False)

    def _message(self, name: bytes) -> bytes:
        return b'EXECUTE "%b" (%d, %d); COMMIT' % (name, self.job.id, self.job.token)

    def _meant_by(self, error: BaseException) -> BaseException:
        """In our words, what the server says by an invalid integer; else the error itself."""
        said = (error.diag.message_primary or "") if isinstance(error, InvalidTextRepresentation) else ""
        if settle.LOST in said:
            return LeaseLost([self.job.id], "ack")
        if settle.DUPLICATE in said:
            return DuplicateEffect(self.job.id, self.job.dedup_scope, self.job.idempotency_key)
        return error


def _roll_back(connection: Connection) -> None:
    """SQLAlchemy sends no ROLLBACK after a commit that has failed: it takes the transaction for ended."""
    pooled: Any = connection.connection
    if not pooled.driver_connection.closed:
        connection.dialect.do_rollback(pooled)


def _prepared_as(driver: Any, sql: str) -> bytes | None:
    """The name of a statement that the driver has prepared on this connection, None if it has not, or not any more.

    Only the driver's own books tell, since it drops its statements after every rollback, also one to a savepoint.
    """
    names: OrderedDict[Any, bytes] | None = getattr(getattr(driver, "_prepared", None), "_names", None)
    key = _as_prepared(sql)
    if names is None or key not in names or driver.pgconn.pipeline_status != PipelineStatus.OFF:
        return None
    names.move_to_end(key)  # it drops those that were not used for the longest time, too
    return names[key]


@cache
def _as_prepared(sql: str) -> tuple[bytes, tuple[int, int]]:
    """The driver's key for a statement: its SQL with numbered parameters, and their types."""
    numbered = sql.replace("%(for_id)s", "$1").replace("%(for_token)s", "$2")
    return numbered.encode(), (_BIGINT, _BIGINT)
