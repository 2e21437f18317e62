"""The worker's own line to the database: connections that no handler can take, transactions bounded on both ends."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from psycopg.types.json import set_json_loads
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool, Pool, QueuePool

from sa_jobqueue.errors import WorkerMisconfigured
from sa_jobqueue.wire import tell
from sa_jobqueue.worker.watchdog import Watchdog

__all__ = ["Line", "line", "most_connections"]

_DRIVER = "psycopg"
_CUT_AFTER = 1.5
"""A transaction is cut after so many of its bounds: where the server still answers, its own error comes first."""


class _Bounded(Protocol):
    """Bounds the transaction in its block, on the thread that it runs on."""

    def __call__(self, at_hand: Connection | None = None, /) -> AbstractContextManager[None]:
        """The wait for a connection is part of it, unless there is one ``at_hand``."""


@dataclass(slots=True)
class Line:
    """An engine, and what each of its transactions runs in: it is bounded to about ``within`` seconds."""

    engine: Engine
    within: float
    bounded: _Bounded
    _at_hand: Connection | None = None

    @contextmanager
    def at_hand(self, engine: Engine) -> Iterator[Connection]:
        """A bounded transaction of the loop, which is waited for: on a connection that stays out of the pool meanwhile.

        To take one out and to give it back is a good part of a claim. ``engine`` is that of this line, with
        options that are the same each time. A pool of a single connection keeps it for others.
        """
        connection, self._at_hand = self._at_hand, None
        with self.bounded(connection):
            connection = connection or engine.connect()
            try:
                with connection.begin():
                    yield connection
            except BaseException:
                connection.close()
                raise
        self._at_hand = connection
        if most_connections(engine.pool) == 1:
            self.hang_up()

    def hang_up(self) -> None:
        """Give back what is at hand."""
        if self._at_hand is not None:
            self._at_hand.close()
            self._at_hand = None


@contextmanager
def line(home: Engine, within: float) -> Iterator[Line]:
    """An engine with the connection settings of ``home`` and a pool of its own; its transactions READ COMMITTED.

    It has no isolation level for SQLAlchemy, which would not override it in an engine that is derived for autocommit.
    The server ends a statement, or a silence between two of them, after ``within`` seconds; where it does not answer,
    the connection is cut a little later. Both are an outage for the caller.

    Raises:
        WorkerMisconfigured: not PostgreSQL.
    """
    if home.dialect.name != "postgresql":
        msg = f"a worker needs PostgreSQL; the sessionmaker is bound to {home.dialect.name}"
        raise WorkerMisconfigured(msg)
    given: dict[str, Any] = {"hide_parameters": home.hide_parameters}
    if home.dialect.is_async or home.dialect.driver != _DRIVER:
        given["connect_args"] = _connect_arguments(home) if home.dialect.driver == _DRIVER else {}
        engine = connecting = create_engine(home.url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, **given)
    else:
        engine, connecting = create_engine(home.url, pool=home.pool.recreate(), **given), home
    if getattr(home.dialect, "_json_deserializer", None) is None:
        event.listen(engine.pool, "connect", _load_json_fast)
    engine.dialect.do_begin = _begin_with_limits(within)  # type: ignore[method-assign, assignment]  # this engine's own
    options = {key: value for key, value in home.get_execution_options().items() if key != "isolation_level"}
    watchdog = Watchdog(engine, connecting, within * _CUT_AFTER)
    own = Line(engine.execution_options(**options), within, watchdog.bounded)
    try:
        with watchdog.watching():
            yield own
    finally:
        own.hang_up()
        engine.dispose()


def most_connections(pool: Pool) -> float:
    """How many connections the pool lets out at a time."""
    if isinstance(pool, NullPool):
        return math.inf
    if not isinstance(pool, QueuePool):
        return 1
    overflow: int = getattr(pool, "_max_overflow", 0)
    return math.inf if overflow < 0 else pool.size() + overflow


_decode = json.JSONDecoder().raw_decode


def _load_json_fast(connection: Any, _record: Any) -> None:
    """What ``jsonb`` sends is UTF-8 without blanks around it, and of most jobs the headers are empty."""
    set_json_loads(_load_json, connection)


def _load_json(sent: Any) -> Any:
    return {} if sent == b"{}" else _decode(str(sent, "utf-8"))[0]


def _begin_with_limits(within: float) -> Callable[[Any], None]:
    """BEGIN and the limits of this one transaction, in the one round trip that BEGIN takes anyway.

    The driver sends its own BEGIN only where none was sent. Limits set for the whole connection would stay behind on
    the server's side of a pooler, and as startup options many poolers refuse them (docs/decisions/0009).
    """
    span = int(within * 1000)
    begin = (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL idle_in_transaction_session_timeout = {span}; SET LOCAL statement_timeout = {span}"
    ).encode()

    def do_begin(connection: Any) -> None:
        if not connection.autocommit:
            tell(connection, begin)

    return do_begin


class _NotConnected(Exception):
    """Carries what a connection would have been made with."""


def _connect_arguments(home: Engine) -> dict[str, Any]:
    """What the application's engine hands to psycopg: a worker behind a pooler needs its ``prepare_threshold`` too.

    SQLAlchemy keeps the argument ``connect_args`` in a closure and shows it only to whoever is about to connect.
    """
    this_thread = threading.get_ident()

    def catch(_dialect: object, _record: object, _arguments: object, given: dict[str, Any]) -> None:
        if threading.get_ident() == this_thread:  # the application may be connecting meanwhile
            raise _NotConnected(given)

    event.listen(home, "do_connect", catch, insert=True)
    try:
        home.pool.recreate().connect()
    except _NotConnected as caught:
        return {name: value for name, value in caught.args[0].items() if name != "context"}  # adapters of that dialect
    finally:
        event.remove(home, "do_connect", catch)
    return {}
