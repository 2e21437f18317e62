"""What ``doctor`` looks at. Each check is one look at the server and a judgement; none changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.cli.show import duration
from sa_jobqueue.errors import SchemaMismatch
from sa_jobqueue.migrations import LATEST, check_schema, installed_version
from sa_jobqueue.migrations.installed import JOB_TABLE
from sa_jobqueue.worker.poolers import ADVICE, is_pooled, prepares

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

__all__ = ["Finding", "Level", "examine"]

_OLDEST_SERVER: Final = 120_000
_SUPPORTED_SERVER: Final = 140_000
_LONG, _TOO_LONG = 60.0, 3_600.0
_MANY_DEAD: Final = 50_000
_CROWDED: Final = 0.8


class Level(StrEnum):
    """How bad a finding is; ``fail`` means that jobs will not run as promised."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw; ``advice`` is empty if nothing is to be done."""

    check: str
    level: Level
    seen: str
    advice: str = ""


def examine(connection: Connection, schema: str | None) -> list[Finding]:
    """Run all checks, each in a transaction of its own; one that the server refuses is a warning, not the end."""
    return [_run(name, check, connection, schema) for name, check in _CHECKS.items()]


def _run(
    name: str,
    check: Callable[[Connection, str | None], tuple[Level, str, str]],
    connection: Connection,
    schema: str | None,
) -> Finding:
    try:
        with connection.begin():
            return Finding(name, *check(connection, schema))
    except DBAPIError as error:
        if connection.invalidated:
            raise
        return Finding(name, Level.WARN, f"could not look: {str(error.orig).splitlines()[0]}", "ask as another role")


def _server(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    number, version = connection.execute(
        text("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
    ).one()
    if number < _OLDEST_SERVER:
        return Level.FAIL, version, "the claim needs MATERIALIZED, PostgreSQL 12 or later"
    if number < _SUPPORTED_SERVER:
        return Level.WARN, version, "this release of PostgreSQL gets no fixes any more; upgrade the server"
    return Level.OK, version, ""


def _tables(connection: Connection, schema: str | None) -> tuple[Level, str, str]:
    try:
        check_schema(connection, schema)
    except SchemaMismatch as mismatch:
        seen, _, advice = str(mismatch).partition(". ")
        return Level.FAIL, seen, advice
    version = installed_version(connection, schema)
    if version is None:
        return Level.OK, "there, without a version (create_all)", ""
    return Level.OK, f"version {version}, latest {LATEST}", ""


def _isolation(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    level = _setting(connection, "default_transaction_isolation")
    if level == "read committed":
        return Level.OK, level, ""
    return Level.WARN, level, "services that claim() will see serialization failures; give their engine READ COMMITTED"


def _idle_timeout(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    timeout = _setting(connection, "idle_in_transaction_session_timeout")
    if timeout != "0":
        return Level.OK, f"idle_in_transaction_session_timeout is {timeout}", ""
    advice = (
        "workers set it for themselves, but a service that hangs after claim() keeps its rows locked: "
        "ALTER ROLE … SET idle_in_transaction_session_timeout = '5min'"
    )
    return Level.WARN, "idle_in_transaction_session_timeout is off", advice


def _connections(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    used, most = connection.execute(
        text(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
            "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
        )
    ).one()
    seen = f"{used} of {most} used"
    if used < _CROWDED * most:
        return Level.OK, f"{seen}; a worker takes its concurrency + 3", ""
    return Level.WARN, seen, "a worker takes its concurrency + 3: lower it, raise max_connections, or use a pooler"


def _pooler(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    if not is_pooled(connection):
        return Level.OK, "none", ""
    if not prepares(connection):
        return Level.OK, "one, and statements are not prepared", ""
    return Level.WARN, "one, and statements are prepared", f"unless it is in session mode: {ADVICE}"


def _snapshots(connection: Connection, _: str | None) -> tuple[Level, str, str]:
    """Whoever holds an old snapshot stops vacuum, and every poll then walks the rows that died since."""
    row = connection.execute(
        text(
            "SELECT pid, usename, application_name, state, "
            "extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL "
            "AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) "
            "ORDER BY xact_start LIMIT 1"
        )
    ).first()
    if row is None:
        return Level.OK, "none held", ""
    level = _by_age(row.age)
    advice = (
        ""
        if level is Level.OK
        else f"it stops vacuum and slows every poll; end it: SELECT pg_terminate_backend({row.pid})"
    )
    return level, f"{duration(row.age)} old ({_session(row)})", advice


def _parked_rows(connection: Connection, schema: str | None) -> tuple[Level, str, str]:
    """A service that claimed in its own transaction and hangs there keeps the row; no lease runs out meanwhile."""
    row = connection.execute(
        text(
            "SELECT pid, usename, application_name, state, count(*) OVER () AS sessions, "
            "extract(epoch FROM clock_timestamp() - state_change)::float8 AS age FROM pg_stat_activity AS session "
            "WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND EXISTS "
            "(SELECT FROM pg_locks WHERE pg_locks.pid = session.pid AND relation = to_regclass(:job) "
            "AND mode IN ('RowShareLock', 'RowExclusiveLock')) ORDER BY state_change LIMIT 1"
        ),
        _job(schema),
    ).first()
    if row is None:
        return Level.OK, "none", ""
    seen = f"by {row.sessions} idle session{'s' * (row.sessions > 1)}, one for {duration(row.age)} ({_session(row)})"
    advice = (
        f"nobody else gets its jobs: SELECT pg_terminate_backend({row.pid}), and for the next time "
        f"ALTER ROLE {row.usename} SET idle_in_transaction_session_timeout = '5min'"
    )
    level = _by_age(row.age)
    return level, seen, "" if level is Level.OK else advice


def _by_age(seconds: float) -> Level:
    return Level.OK if seconds < _LONG else Level.WARN if seconds < _TOO_LONG else Level.FAIL


def _session(row: Any) -> str:
    return f"pid {row.pid}, {row.usename}, {row.application_name or 'no application_name'}, {row.state}"


def _vacuum(connection: Connection, schema: str | None) -> tuple[Level, str, str]:
    if _setting(connection, "autovacuum") != "on" or _setting(connection, "track_counts") != "on":
        return Level.FAIL, "off", "dead rows of finished jobs pile up: set autovacuum and track_counts to on"
    options = connection.scalar(text("SELECT reloptions FROM pg_class WHERE oid = to_regclass(:job)"), _job(schema))
    if {"autovacuum_enabled=false", "autovacuum_enabled=off"} & set(options or ()):
        return Level.FAIL, f"off for {JOB_TABLE}", f"ALTER TABLE {JOB_TABLE} RESET (autovacuum_enabled)"
    return Level.OK, "on", ""


def _dead_rows(connection: Connection, schema: str | None) -> tuple[Level, str, str]:
    query = "SELECT n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE relid = to_regclass(:job)"
    row = connection.execute(text(query), _job(schema)).first()
    if row is None:
        return Level.WARN, f"no statistics of {JOB_TABLE}", "migrate first"
    seen = f"{row.n_dead_tup:,} dead, {row.n_live_tup:,} live"
    if row.n_dead_tup < _MANY_DEAD + row.n_live_tup:
        return Level.OK, seen, ""
    return Level.WARN, seen, f"vacuum does not keep up: end old snapshots, then VACUUM {JOB_TABLE}"


def _setting(connection: Connection, name: str) -> str:
    return str(connection.scalar(text("SELECT current_setting(:name)"), {"name": name}))


def _job(schema: str | None) -> dict[str, Any]:
    return {"job": JOB_TABLE if schema is None else f'"{schema.replace(chr(34), chr(34) * 2)}".{JOB_TABLE}'}


_CHECKS: Final = {
    "server": _server,
    "tables": _tables,
    "isolation level": _isolation,
    "idle timeout": _idle_timeout,
    "parked rows": _parked_rows,
    "connections": _connections,
    "pooler": _pooler,
    "oldest snapshot": _snapshots,
    "autovacuum": _vacuum,
    "dead rows": _dead_rows,
}
