"""The package's own way to migrate, for hosts without Alembic, for tests and demos: ``sa-jobqueue migrate``.

It keeps its place in a version table of its own, ``sa_jobqueue_alembic_version``, beside the queue's tables. Tables
that came another way are refused and never adopted unasked. Alembic has one environment per process: not for use inside
a running Alembic migration (there, call :func:`sa_jobqueue.migrations.upgrade`), nor in two threads at once.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, column, insert, table

from sa_jobqueue.errors import SchemaMismatch
from sa_jobqueue.migrations.autogenerate import RUNNER_VERSION_TABLE
from sa_jobqueue.migrations.guards import require_postgresql, wait_for_turn
from sa_jobqueue.migrations.installed import Installed, look
from sa_jobqueue.migrations.steps import LATEST, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["current", "migrate", "rollback", "script", "stamp"]


def migrate(bind: Engine | Connection, *, schema: str | None = None, target: str = "head") -> None:
    """Upgrade to revision ``target``. Processes that do this at once take turns, and the later find nothing to do.

    Args:
        bind: an Engine, then the work is committed; or a Connection, then that is left to the caller.
        schema: where the tables go, made if missing; None goes by the search path.
        target: a revision such as ``sajq_0001``, or ``head``.

    Raises:
        MigrationBlocked: a lock was not to be had in time.
        SchemaMismatch: the tables that are there did not come this way; the message says what to do.
        UnsupportedDatabase: not PostgreSQL, or a Connection that is not READ COMMITTED.
    """
    with _connected(bind) as connection:
        command.upgrade(_online(connection, schema), target)


def rollback(bind: Engine | Connection, *, target: str, schema: str | None = None) -> None:
    """Downgrade to revision ``target``; ``base`` drops the tables with everything in them.

    Raises:
        As ``migrate``.
    """
    with _connected(bind) as connection:
        command.downgrade(_online(connection, schema), target)


def stamp(bind: Engine | Connection, *, schema: str | None = None) -> None:
    """Adopt tables that came another way, on the caller's word that they are what this release declares.

    Raises:
        SchemaMismatch: there are no tables, or they are at another version; nothing was changed.
        UnsupportedDatabase: as ``migrate``.
    """
    with (
        _connected(bind) as connection,
        connection.begin_nested() if connection.in_transaction() else connection.begin(),
    ):
        wait_for_turn(connection)
        found = look(connection, schema)
        if not found.job or not found.version_table or found.version not in (None, LATEST):
            msg = f"only complete tables of schema version {LATEST} can be stamped; found {found}. Migrate them instead"
            raise SchemaMismatch(msg)
        if found.version is None:
            connection.execute(insert(table(VERSION_TABLE, column("version"), schema=schema)).values(version=LATEST))
        _context(connection, schema).stamp(ScriptDirectory.from_config(_config(schema)), "head")
        if isinstance(bind, Engine):
            connection.commit()


def script(revisions: str = "base:head", *, schema: str | None = None, down: bool = False) -> str:
    """The SQL that ``migrate`` would run, or ``rollback`` if ``down``; needs no database.

    Args:
        revisions: where it starts and where it ends, such as ``base:head`` or, going down, ``head:base``.
        schema: as for ``migrate``.
        down: the direction.
    """
    buffer = StringIO()
    generate = command.downgrade if down else command.upgrade
    generate(_config(schema, buffer), revisions, sql=True)
    return buffer.getvalue()


def current(connection: Connection, *, schema: str | None = None) -> str | None:
    """The revision that ``migrate`` has arrived at; None if it never ran here."""
    return _context(connection, schema).get_current_revision()


@contextmanager
def _connected(bind: Engine | Connection) -> Iterator[Connection]:
    require_postgresql(bind.dialect.name)
    if isinstance(bind, Connection):
        if not bind.in_transaction():
            bind.begin()  # else Alembic would begin a transaction, and commit it
        yield bind
        return
    with bind.connect() as connection:
        yield connection.execution_options(isolation_level="READ COMMITTED")


def _config(schema: str | None, buffer: StringIO | None = None) -> Config:
    config = Config(output_buffer=buffer)
    config.set_main_option("script_location", "sa_jobqueue:migrations")
    config.set_main_option("path_separator", "newline")
    if schema is not None:
        config.set_section_option("sa_jobqueue", "schema", schema.replace("%", "%%"))
    return config


def _online(connection: Connection, schema: str | None) -> Config:
    config = _config(schema)
    config.attributes["connection"] = connection
    config.attributes["enter"] = lambda: _enter(connection, schema)
    return config


def _enter(connection: Connection, schema: str | None) -> None:
    wait_for_turn(connection)
    found, revision = look(connection, schema), current(connection, schema=schema)
    recorded = None if revision is None else int(revision.removeprefix("sajq_"))
    problem = _problem(found, recorded)
    if problem is not None:
        msg = f"nothing was changed: {problem}."
        raise SchemaMismatch(msg)


def _problem(found: Installed, recorded: int | None) -> str | None:
    if found.unversioned:
        return (
            "tables of the queue are there, but no migration has made them; create_all leaves them so. Drop them and "
            "migrate again; or, if they are what this release declares, adopt them once: `sa-jobqueue migrate --stamp`"
        )
    if recorded is None and found.version is not None:
        return (
            f"the tables are already at schema version {found.version}, migrated another way: go on with the "
            f"application's `alembic upgrade` and leave this command out; or hand them over to this command for good, "
            f"once: `sa-jobqueue migrate --stamp`"
        )
    if recorded != found.version:
        return (
            f"{RUNNER_VERSION_TABLE} says version {recorded}, but the tables say {found.version}: something else has "
            f"changed them. If they were dropped by hand, drop {RUNNER_VERSION_TABLE} too, then migrate again"
        )
    if recorded is not None and recorded > LATEST:
        return f"the tables are at schema version {recorded}, of a newer release; this one knows {LATEST}"
    return None


def _context(connection: Connection, schema: str | None) -> MigrationContext:
    opts = {"version_table": RUNNER_VERSION_TABLE, "version_table_schema": schema}
    return MigrationContext.configure(connection, opts=opts)
