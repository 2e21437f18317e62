"""One blocking surface over ``JobSession`` and ``AsyncJobSession``, so that each behaviour is written once."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from sa_jobqueue import AsyncJobSession, JobSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import NestedTransaction, Row
    from sqlalchemy.orm import SessionTransaction

T = TypeVar("T")

SESSION_OPTIONS = {"join_transaction_mode", "expire_on_commit"}


class Client:
    """A session of some application with the queue in it; every operation has its name in ``JobSession``."""

    def run(self, work: Callable[[Session], T]) -> T:
        """What ``work`` makes of the (synchronous) session."""
        raise NotImplementedError

    def close(self) -> None:
        self.run(lambda session: session.close())

    def commit(self) -> None:
        self.run(lambda session: session.commit())

    def rollback(self) -> None:
        self.run(lambda session: session.rollback())

    def add(self, instance: object) -> None:
        self.run(lambda session: session.add(instance))

    def execute(self, sql: str, **values: Any) -> Sequence[Row[Any]]:
        """Rows of a statement, which never flushes what is pending."""

        def rows(session: Session) -> Sequence[Row[Any]]:
            result = session.connection().execute(text(sql), values)
            return result.all() if result.returns_rows else ()

        return self.run(rows)

    def begin_nested(self) -> Savepoint:
        return Savepoint(self, self.run(lambda session: session.begin_nested()))

    def begin_nested_on_the_connection(self) -> Savepoint:
        """A savepoint of which the session knows nothing."""
        return Savepoint(self, self.run(lambda session: session.connection().begin_nested()))


class Savepoint:
    """A savepoint of a client's session or connection; an exception that leaves its block rolls it back."""

    def __init__(self, client: Client, transaction: SessionTransaction | NestedTransaction) -> None:
        self._client, self._transaction = client, transaction

    def commit(self) -> None:
        self._client.run(lambda _: self._transaction.commit())

    def rollback(self) -> None:
        self._client.run(lambda _: self._transaction.rollback())

    def close(self) -> None:
        self._client.run(lambda _: self._transaction.close())

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        self.commit() if kind is None else self.rollback()


class SyncClient(Client):
    def __init__(self, session: Session, options: dict[str, Any]) -> None:
        self._session, self._jobs = session, JobSession(session, **options)

    def run(self, work: Callable[[Session], T]) -> T:
        return work(self._session)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._jobs, operation)


class AsyncClient(Client):
    """Awaits every call on an event loop of its own, so that it may live in any thread."""

    def __init__(self, runner: asyncio.Runner, session: AsyncSession, options: dict[str, Any]) -> None:
        self._runner, self._session, self._jobs = runner, session, AsyncJobSession(session, **options)

    def run(self, work: Callable[[Session], T]) -> T:
        return self._runner.run(self._session.run_sync(work))

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._jobs, operation)
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))


@contextmanager
def sync_client(url: str, *, isolation_level: str = "READ COMMITTED", **options: Any) -> Iterator[Client]:
    engine = create_engine(url, poolclass=NullPool, isolation_level=isolation_level)
    for_session = {name: options.pop(name) for name in SESSION_OPTIONS & options.keys()}
    with Session(engine, **for_session) as session:
        yield SyncClient(session, options)


@contextmanager
def async_client(url: str, *, isolation_level: str = "READ COMMITTED", **options: Any) -> Iterator[Client]:
    engine = create_async_engine(url, poolclass=NullPool, isolation_level=isolation_level)
    for_session = {name: options.pop(name) for name in SESSION_OPTIONS & options.keys()}
    with asyncio.Runner() as runner:
        client = AsyncClient(runner, AsyncSession(engine, **for_session), options)
        yield client
        client.close()


CLIENTS = {"sync": sync_client, "async": async_client}
