"""One statement on one connection, sent as the driver's SQL.

SQLAlchemy compiles a statement at every execution when it cannot cache it (2.0: every INSERT with ON CONFLICT), and
looks its cache up otherwise. Ours never change, so each is compiled once in the life of the process. And what every job
costs, its claim and its ack, goes by the driver's own cursor if nobody listens to statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from sqlalchemy import BigInteger, Connection, CursorResult, Executable
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import psycopg as dialects

__all__ = [
    "as_sent",
    "begin",
    "fetch",
    "in_autocommit",
    "is_listened_to",
    "on_driver",
    "send",
    "speaks_psycopg",
    "tell",
    "text_of",
]

_DRIVERS = frozenset({"psycopg", "psycopg_async"})


def send(connection: Connection, statement: Executable, given: Mapping[str, Any]) -> CursorResult[Any]:
    """Execute one of our statements; parameters are plain values, with JSON as text.

    Another driver, or a ``schema_translate_map``, takes SQLAlchemy's own way.
    """
    if not speaks_psycopg(connection):
        return connection.execute(statement, given)
    return connection.exec_driver_sql(*as_sent(statement, given))


def fetch(connection: Connection, statement: Executable, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """:func:`send` for the rows alone; the connection's transaction has begun."""
    if not speaks_psycopg(connection) or is_listened_to(connection):
        return [tuple(row) for row in send(connection, statement, given)]
    sql, values = as_sent(statement, given)
    with on_driver(connection, sql, values):
        cursor = connection.connection.cursor()
        try:
            cursor.execute(sql, values)
            return cast("list[tuple[Any, ...]]", cursor.fetchall())
        finally:
            cursor.close()


def as_sent(statement: Executable, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The SQL for the driver, and its parameters by name."""
    return _compiled(statement).with_values(given)


def text_of(statement: Executable) -> str:
    """The SQL for the driver of a statement whose parameters are all sent apart."""
    return _compiled(statement).sql


@contextmanager
def on_driver(connection: Connection, sql: str, values: Any = None) -> Iterator[None]:
    """For what is done past SQLAlchemy: an error of the driver becomes what SQLAlchemy would have made of it."""
    try:
        yield
    except psycopg.Error as error:
        _raise_as_told(connection, error, sql, values)


def _raise_as_told(connection: Connection, error: psycopg.Error, sql: str, values: Any = None) -> None:
    connection._handle_dbapi_exception(error, sql, values, None, None)  # noqa: SLF001 - the only such thing


def begin(connection: Connection) -> None:
    """Send by :func:`tell` the BEGIN that the driver would send with the first statement, if it is a plain one.

    The transaction has begun for SQLAlchemy, and is not in AUTOCOMMIT.
    """
    driver = connection.connection.dbapi_connection
    if isinstance(driver, psycopg.Connection) and _begins_plainly(driver):
        try:
            tell(driver, b"BEGIN")
        except psycopg.Error as error:
            _raise_as_told(connection, error, "BEGIN")


def _begins_plainly(driver: psycopg.Connection[Any]) -> bool:
    return (
        driver.pgconn.transaction_status == TransactionStatus.IDLE
        and driver.pgconn.pipeline_status == PipelineStatus.OFF
        and (driver.isolation_level, driver.read_only, driver.deferrable) == (None, None, None)
    )


def tell(driver: Any, message: bytes) -> None:
    """Send SQL that answers no rows, in one call of libpq: the driver's own way lets Python's lock go three times.

    ``driver`` is a psycopg connection, which raises what it would have raised itself; nothing interrupts the wait for
    the answer but the end of the connection.
    """
    result = driver.pgconn.exec_(message)
    if driver.closed:
        raise psycopg.OperationalError(result.get_error_message())
    if result.status != ExecStatus.COMMAND_OK:
        raise error_from_result(result, encoding=driver.info.encoding)


def is_listened_to(connection: Connection) -> bool:
    """Whether somebody is to hear of each statement of the engine: a tracer, or who reads its log (``echo``)."""
    engine: Any = connection.engine
    if connection._echo:  # noqa: SLF001 - asked of the logger once, when the connection was made
        return True
    if not engine._has_events:  # noqa: SLF001 - true of nearly all, and quickly told
        return False
    dispatch = engine.dispatch  # a connection would first join its own, which takes longer
    return bool(dispatch.before_cursor_execute or dispatch.after_cursor_execute)


def in_autocommit(connection: Connection) -> bool:
    """Whether a statement commits by itself, so that its row locks end with it."""
    return bool(getattr(connection.connection.dbapi_connection, "autocommit", False))


def speaks_psycopg(connection: Connection) -> bool:
    """Whether SQL for psycopg, with the tables' own schema, may be sent as it is."""
    return connection.dialect.driver in _DRIVERS and "schema_translate_map" not in connection.get_execution_options()


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The SQL of a statement, and its parameters: those of its own, those in its text, and the arrays of numbers.

    The driver takes longer to write an array than the server to read it; one of numbers is quickly written as text.
    """

    sql: str
    constants: dict[str, Any]
    literals: tuple[str, ...]
    numbers: tuple[str, ...]

    def with_values(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        sql = self.sql
        for name in self.literals:
            sql = sql.replace(f"__[POSTCOMPILE_{name}]", str(int(given[name])))
        arrays = {name: _array(given[name]) for name in self.numbers}
        return sql, {**self.constants, **given, **arrays}


@cache
def _compiled(statement: Executable) -> _Compiled:
    dialect: Any = dialects.dialect
    compiled = cast("Any", statement).compile(dialect=dialect())
    literals = tuple(parameter.key for parameter in compiled.literal_execute_params)
    numbers = tuple(name for name, parameter in compiled.binds.items() if _is_of_numbers(parameter.type))
    return _Compiled(compiled.string, compiled.params, literals, numbers)


def _is_of_numbers(kind: object) -> bool:
    return isinstance(kind, ARRAY) and isinstance(kind.item_type, BigInteger)


def _array(numbers: Iterable[int] | None) -> str | None:
    return None if numbers is None else f"{{{','.join(map(str, numbers))}}}"
