"""What is in a database: which version of the tables, and whether this release can serve it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, column, inspect, select, table

from sa_jobqueue.errors import SchemaMismatch
from sa_jobqueue.migrations.steps import LATEST, VERSION_TABLE

__all__ = ["Installed", "check_schema", "installed_version", "look"]

JOB_TABLE: Final = "jobqueue_job"
NEWEST: Final = LATEST + 1
"""Each step keeps the release before it working, so that workers can be restarted while a deployment is under way."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What was found: the job table, the version table, and the version in its one row."""

    job: bool
    version_table: bool
    version: int | None

    @property
    def unversioned(self) -> bool:
        """True if something of ours is there, but no row says what; ``create_all`` leaves it so."""
        return self.version is None and (self.job or self.version_table)


def look(connection: Connection, schema: str | None = None, job_table: str = JOB_TABLE) -> Installed:
    """Look without raising: a missing table is an answer, and the connection's transaction stays usable."""
    inspector = inspect(connection)
    version_table = inspector.has_table(VERSION_TABLE, schema=schema)
    return Installed(
        job=inspector.has_table(job_table, schema=schema),
        version_table=version_table,
        version=_read(connection, schema) if version_table else None,
    )


def installed_version(connection: Connection, schema: str | None = None) -> int | None:
    """The version that the migrations have written down; None without tables, or with tables of ``create_all``."""
    return look(connection, schema).version


def check_schema(connection: Connection, schema: str | None = None, *, job_table: str = JOB_TABLE) -> None:
    """Refuse tables that this release cannot serve. Three small reads, meant for the start of a process.

    Served are this release's version and the next one. Tables without a version row, such as those of
    ``metadata.create_all`` or those that a team has put on its own ``Base``, are taken on trust.

    Args:
        connection: any connection; an async one through ``run_sync``.
        schema: where the tables are; None goes by the search path.
        job_table: the name of the job table, for a team that chose its own.

    Raises:
        SchemaMismatch: the job table is missing, or its version is not one of the two.
    """
    found = look(connection, schema, job_table)
    if not found.job:
        where = "on the search path" if schema is None else f"in schema {schema!r}"
        msg = (
            f"there is no table {job_table} {where}. Migrate first: `alembic upgrade head` in an application whose "
            f"history holds the queue, else `sa-jobqueue migrate`; or name the right schema."
        )
        raise SchemaMismatch(msg)
    if found.version is not None and not LATEST <= found.version <= NEWEST:
        raise SchemaMismatch(_unserved(found.version))


def _read(connection: Connection, schema: str | None) -> int | None:
    version: int | None = connection.scalar(select(column("version")).select_from(table(VERSION_TABLE, schema=schema)))
    return version


def _unserved(version: int) -> str:
    remedy = "upgrade the tables, then start again" if version < LATEST else "upgrade the package sa-jobqueue here"
    return f"the tables are at schema version {version}; this release serves {LATEST} and {NEWEST}: {remedy}."
