"""What the server's own views say of itself and of our tables, from PostgreSQL 14 to 18."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, text

from sa_jobqueue.cli.tune.observed import Server, Table
from sa_jobqueue.models import DedupKey, Job, JobLog, Models, Rollup
from sa_jobqueue.statements import tune

__all__ = ["fsync_seconds", "own_keys", "server", "tables"]

_TABLES: Final = (Job, DedupKey, JobLog, Rollup)
_ENOUGH_FLUSHES: Final = 100
_SAMPLE: Final = 2**21
"""Bytes of dedup keys that are read, some ten thousand of them."""
_WAL_IN_IO: Final = 180_000
"""From this version on the flushes of the WAL are counted in pg_stat_io."""

_SERVER: Final = text(
    "SELECT current_setting('max_connections')::int AS max_connections, "
    "current_setting('superuser_reserved_connections')::int "
    "+ coalesce(current_setting('reserved_connections', true), '0')::int AS reserved, "
    "current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync, "
    "extract(epoch FROM current_setting('autovacuum_naptime')::interval)::float8 AS naptime, "
    "coalesce(current_setting('track_wal_io_timing', true), 'off') = 'on' AS flushes_timed"
)
_FLUSHES: Final = "SELECT wal_sync AS flushes, wal_sync_time AS spent FROM pg_stat_wal"
_FLUSHES_IN_IO: Final = (
    "SELECT coalesce(sum(fsyncs), 0)::bigint AS flushes, coalesce(sum(fsync_time), 0)::float8 AS spent "
    "FROM pg_stat_io WHERE object = 'wal'"
)
_TABLE: Final = text(
    "SELECT greatest(pg_stat_get_live_tuples(pg_class.oid), reltuples, 0)::bigint AS live, "
    "pg_relation_size(pg_class.oid) AS heap, pg_indexes_size(pg_class.oid) AS indexes, reloptions AS options, "
    "(SELECT sum(avg_width)::float8 FROM pg_stats WHERE schemaname = nspname "
    "AND tablename = relname) AS width FROM pg_class "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass(:name)"
)


def server(connection: Connection) -> Server:
    """Its settings; what a flush takes is another look."""
    row = connection.execute(_SERVER).one()
    return Server(**row._mapping)  # noqa: SLF001 - public in SQLAlchemy, despite its name


def fsync_seconds(connection: Connection) -> float | None:
    """The mean time of a flush of the WAL to disk; None if there were hardly any."""
    version = connection.scalar(text("SELECT current_setting('server_version_num')::int"))
    row = connection.execute(text(_FLUSHES_IN_IO if version >= _WAL_IN_IO else _FLUSHES)).one()
    return row.spent / row.flushes / 1000 if row.spent and row.flushes >= _ENOUGH_FLUSHES else None


def tables(connection: Connection, schema: str | None) -> dict[str, Table]:
    """Those of our tables that there are."""
    found = {model.__tablename__: _table(connection, schema, model.__tablename__) for model in _TABLES}
    return {name: table for name, table in found.items() if table is not None}


def own_keys(connection: Connection, seen: Mapping[str, Table]) -> float | None:
    """The share of keys that are no natural ones, in a sample; None without keys."""
    keys = seen.get(DedupKey.__tablename__)
    if keys is None:
        return None
    percent = min(100.0, 100.0 * _SAMPLE / max(keys.heap, 1))
    row = connection.execute(tune.key_sample(Models()), {"percent": percent}).one()
    return row.own / row.keys if row.keys else None


def _table(connection: Connection, schema: str | None, name: str) -> Table | None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    row = connection.execute(_TABLE, {"name": name if schema is None else f"{quote(schema)}.{name}"}).first()
    return None if row is None else Table(name, **{**row._mapping, "options": _options(row.options)})  # noqa: SLF001 - as above


def _options(given: list[str] | None) -> dict[str, Any]:
    return dict(option.split("=", 1) for option in given or ())
