"""The ack of a single run on its way with the COMMIT: one message to the server, one answer.

The ack is the last statement before the COMMIT anyway, and most of what both cost is the way there and back. Nothing is
lost by not waiting between them, since the server does not go on in a message after an error: a stale token or an
effect that exists already is an error of this ack (``settle.ack_or_error``), so the COMMIT behind it is not reached.

The message names the statement as the driver has prepared it. Where that cannot be (the first time on a connection,
behind a pooler), the ack is sent alone, and the COMMIT follows as ever.
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
from sqlalchemy import Connection, Dialect, Executable, PoolProxiedConnection, RootTransaction

from sa_jobqueue.errors import DuplicateEffect, LeaseLost
from sa_jobqueue.fence import fence_of
from sa_jobqueue.statements import settle
from sa_jobqueue.wire import as_sent, in_autocommit, is_listened_to, speaks_psycopg, tell, text_of
from sa_jobqueue.worker.backend import is_direct

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue.models import Models
    from sa_jobqueue.values import ClaimedJob

__all__ = ["acknowledge_at_commit", "acknowledge_with_commit"]

_BIGINT = psycopg.adapters.types["int8"].oid


def acknowledge_at_commit(session: Session, models: Models, job: ClaimedJob, statement: Executable) -> bool:
    """Let the session's next commit acknowledge the job; False, and nothing is done, where that is not possible.

    That commit raises :class:`LeaseLost` or :class:`DuplicateEffect` instead of committing; the caller is to send the
    ROLLBACK, since SQLAlchemy sends none then. ``statement`` is :func:`settle.ack_or_error`.
    """
    connection = session.connection(bind_arguments={"mapper": models.job})
    fence = fence_of(session)
    if session.twophase or job.id in fence.known_duplicates:
        return False
    if not acknowledge_with_commit(connection, job, statement):
        return False
    fence.follow(connection)
    fence.settle(job.id, "ack")
    return True


def acknowledge_with_commit(connection: Connection, job: ClaimedJob, statement: Executable) -> bool:
    """:func:`acknowledge_at_commit` for a connection that is in a transaction."""
    if not _may_wait(connection):
        return False
    _take_part_in_commits(connection.dialect)
    _closings[connection.connection] = _Closing(job, statement)
    return True


_closings: WeakKeyDictionary[PoolProxiedConnection, _Closing] = WeakKeyDictionary()
"""What is to be said at the commit of each connection; the pool hands the same one out under another object."""


def _may_wait(connection: Connection) -> bool:
    """Whether what is sent at this connection's commit is the last before that commit."""
    return (
        type(connection.get_transaction()) is RootTransaction
        and not connection.in_nested_transaction()
        and speaks_psycopg(connection)
        and not in_autocommit(connection)
        and not is_listened_to(connection)
    )


def _take_part_in_commits(dialect: Dialect) -> None:
    """For good: a handler that the worker has given up may come back, and commit, after the worker has ended.

    Not by the engine's event: an engine with a listener asks who listens at each statement, of each connection anew.
    """
    if not isinstance(dialect.do_commit, _Commit):
        dialect.do_commit = _Commit(dialect, dialect.do_commit)  # type: ignore[method-assign, assignment]  # of this one


@dataclass(frozen=True, slots=True)
class _Commit:
    """The COMMIT of a dialect, after everybody who listens was told of it, and the ack before it or in it."""

    dialect: Dialect
    commit: Callable[[PoolProxiedConnection], None]

    def __call__(self, pooled: PoolProxiedConnection) -> None:
        closing = _closings.pop(pooled, None)
        if closing is None or not self._say(closing, pooled):
            self.commit(pooled)

    def _say(self, closing: _Closing, pooled: PoolProxiedConnection) -> bool:
        try:
            return closing.say(pooled, is_async=self.dialect.is_async)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or what it means
            raise closing.meant_by(error) from None


@dataclass(frozen=True, slots=True)
class _Closing:
    """The ack of one job, and the COMMIT where both go together."""

    job: ClaimedJob
    statement: Executable

    def say(self, pooled: Any, *, is_async: bool) -> bool:
        """Acknowledge; the answer is whether that has committed too."""
        driver, together = pooled.dbapi_connection, is_direct(pooled)
        if not is_async:
            return self._say(driver, together=together)
        committed: bool = driver.run_async(partial(self._say_async, together=together))
        return committed

    def _say(self, driver: Any, *, together: bool) -> bool:
        name = _prepared_as(driver, self.statement) if together else None
        if name is None:
            driver.execute(*self._statement(), prepare=together or None)
            return False
        begin = b"BEGIN; " if driver.pgconn.transaction_status == TransactionStatus.IDLE else b""
        tell(driver, begin + self._message(name))
        return True

    async def _say_async(self, driver: Any, *, together: bool) -> bool:
        name = _prepared_as(driver, self.statement) if together else None
        if name is None:
            await driver.execute(*self._statement(), prepare=together or None)
            return False
        await driver.execute(self._message(name), prepare=False)
        return True

    def _statement(self) -> tuple[str, dict[str, Any]]:
        return as_sent(self.statement, {"for_id": Int8(self.job.id), "for_token": Int8(self.job.token)})

    def _message(self, name: bytes) -> bytes:
        return b'EXECUTE "%b" (%d, %d); COMMIT' % (name, self.job.id, self.job.token)

    def meant_by(self, error: BaseException) -> BaseException:
        """In our words, what the server says by an invalid integer; else the error itself."""
        said = (error.diag.message_primary or "") if isinstance(error, InvalidTextRepresentation) else ""
        if settle.LOST in said:
            return LeaseLost([self.job.id], "ack")
        if settle.DUPLICATE in said:
            return DuplicateEffect(self.job.id, self.job.dedup_scope, self.job.idempotency_key)
        return error


def _prepared_as(driver: Any, statement: Executable) -> bytes | None:
    """The name of a statement that the driver has prepared on this connection, None if it has not, or not any more.

    Only the driver's own books tell, since it drops its statements after every rollback, also one to a savepoint.
    """
    names: OrderedDict[Any, bytes] | None = getattr(getattr(driver, "_prepared", None), "_names", None)
    key = _as_prepared(statement)
    if names is None or key not in names or driver.pgconn.pipeline_status != PipelineStatus.OFF:
        return None
    names.move_to_end(key)  # it drops those that were not used for the longest time, too
    return names[key]


@cache
def _as_prepared(statement: Executable) -> tuple[bytes, tuple[int, int]]:
    """The driver's key for a statement: its SQL with numbered parameters, and their types."""
    numbered = text_of(statement).replace("%(for_id)s", "$1").replace("%(for_token)s", "$2")
    return numbered.encode(), (_BIGINT, _BIGINT)
