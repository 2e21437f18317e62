"""One statement on one connection, sent as the driver's SQL.

SQLAlchemy compiles a statement at every execution when it cannot cache it (2.0: every INSERT with ON CONFLICT), and
looks its cache up otherwise. Ours never change, so each is compiled once in the life of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, CursorResult, Executable
from sqlalchemy.dialects.postgresql import psycopg

__all__ = ["send", "speaks_psycopg"]

_DRIVERS = frozenset({"psycopg", "psycopg_async"})


def send(connection: Connection, statement: Executable, given: Mapping[str, Any]) -> CursorResult[Any]:
    """Execute one of our statements; parameters are plain values, with JSON as text.

    Another driver, or a ``schema_translate_map``, takes SQLAlchemy's own way.
    """
    if not speaks_psycopg(connection):
        return connection.execute(statement, given)
    return connection.exec_driver_sql(*_compiled(statement).with_values(given))


def speaks_psycopg(connection: Connection) -> bool:
    """Whether SQL for psycopg, with the tables' own schema, may be sent as it is."""
    return connection.dialect.driver in _DRIVERS and "schema_translate_map" not in connection.get_execution_options()


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The SQL of a statement, with the parameters that it has by itself, and those that are written into its text."""

    sql: str
    constants: dict[str, Any]
    literals: tuple[str, ...]

    def with_values(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        sql = self.sql
        for name in self.literals:
            sql = sql.replace(f"__[POSTCOMPILE_{name}]", str(int(given[name])))
        return sql, {**self.constants, **given}


@cache
def _compiled(statement: Executable) -> _Compiled:
    dialect: Any = psycopg.dialect
    compiled = cast("Any", statement).compile(dialect=dialect())
    literals = tuple(parameter.key for parameter in compiled.literal_execute_params)
    return _Compiled(compiled.string, compiled.params, literals)
