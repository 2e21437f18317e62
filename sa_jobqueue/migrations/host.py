"""The way in for an application: two calls inside a migration of its own."""

from __future__ import annotations

from alembic import op
from alembic.operations import Operations

from sa_jobqueue.errors import InvalidArgument, SchemaMismatch
from sa_jobqueue.migrations.guards import require_postgresql, short_lock_timeout
from sa_jobqueue.migrations.installed import look
from sa_jobqueue.migrations.steps import LATEST, STEPS, VERSION_TABLE

__all__ = ["downgrade", "upgrade"]


def upgrade(version: int | None = None, *, schema: str | None = None, from_version: int | None = None) -> None:
    """Bring the tables to ``version`` from whichever they are at; do nothing if they are there already.

    Args:
        version: the schema version to arrive at. Write the number down in a migration that is committed: None
            means the newest that the installed release knows, which is another one next year.
        schema: where the tables go, made if missing; None goes by the search path.
        from_version: what an SQL script (``--sql``) starts from, since it cannot ask; 0 if not given. Online the
            database is asked and this is ignored.

    Raises:
        InvalidArgument: this release has no such version.
        MigrationBlocked: a lock was not to be had in time.
        SchemaMismatch: tables are there that no migration has made.
        UnsupportedDatabase: not PostgreSQL.
    """
    target = _known(LATEST if version is None else version, least=1)
    operations = _operations()
    start = _start(operations, schema, from_version or 0)
    with short_lock_timeout(operations.execute):
        for step in STEPS:
            if start < step.version <= target:
                step.up(operations, schema)


def downgrade(version: int, *, schema: str | None = None, from_version: int | None = None) -> None:
    """Bring the tables back to ``version``; 0 drops them with everything in them, but not the schema around them.

    Args:
        version: the schema version to arrive at.
        schema: as it was given to ``upgrade``.
        from_version: as for ``upgrade``, but without a default in an SQL script.

    Raises:
        InvalidArgument: no such version, or no ``from_version`` in an SQL script.
        MigrationBlocked: a lock was not to be had in time.
        SchemaMismatch: the tables are of a newer release, or no migration has made them.
        UnsupportedDatabase: not PostgreSQL.
    """
    target = _known(version, least=0)
    operations = _operations()
    start = _known(_start(operations, schema, from_version), least=0)
    with short_lock_timeout(operations.execute):
        for step in reversed(STEPS):
            if target < step.version <= start:
                step.down(operations, schema)


def _operations() -> Operations:
    context = op.get_context()
    require_postgresql(context.dialect.name)
    return Operations(context)


def _start(operations: Operations, schema: str | None, from_version: int | None) -> int:
    if operations.get_context().as_sql:
        if from_version is None:
            msg = "an SQL script cannot read which version is installed: give downgrade(..., from_version=...)"
            raise InvalidArgument(msg)
        return from_version
    found = look(operations.get_bind(), schema)
    if found.unversioned:
        raise SchemaMismatch(_unversioned(schema))
    return found.version or 0


def _known(version: int, *, least: int) -> int:
    if version > LATEST:
        msg = f"schema version {version} is of a newer release; this one knows {LATEST}. Upgrade sa-jobqueue first"
        raise SchemaMismatch(msg)
    if version < least:
        msg = f"there is no schema version {version}; give one from {least} to {LATEST}"
        raise InvalidArgument(msg)
    return version


def _unversioned(schema: str | None) -> str:
    table = VERSION_TABLE if schema is None else f'"{schema}".{VERSION_TABLE}'
    remedy = f"INSERT INTO {table} (version) VALUES ({LATEST})"  # noqa: S608 (shown to a person, never executed)
    return (
        "nothing was changed: tables of the queue are there, but no migration has made them; create_all leaves them "
        f"so. Drop them and migrate again; or, if they are what this release declares, say so: {remedy}; "
        "then migrate again."
    )
