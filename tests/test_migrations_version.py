"""What a process learns about the tables when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, event, text

from sa_jobqueue.errors import SchemaMismatch
from sa_jobqueue.migrations import LATEST, check_schema, installed_version, runner
from sa_jobqueue.models import metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncEngine


@pytest.fixture
def connection(empty_database_url: str) -> Iterator[Connection]:
    engine = create_engine(empty_database_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_a_migrated_database_is_served_and_tells_its_version(connection: Connection) -> None:
    runner.migrate(connection)
    check_schema(connection)
    assert installed_version(connection) == LATEST


def test_an_empty_database_is_refused_and_the_transaction_stays_usable(connection: Connection) -> None:
    with pytest.raises(SchemaMismatch, match=r"no table jobqueue_job on the search path.*alembic upgrade head"):
        check_schema(connection)
    assert installed_version(connection) is None
    assert connection.scalar(text("SELECT 1")) == 1


def test_tables_in_another_schema_are_found_only_there(connection: Connection) -> None:
    runner.migrate(connection, schema="queue")
    check_schema(connection, "queue")
    with pytest.raises(SchemaMismatch, match="name the right schema"):
        check_schema(connection)


def test_tables_on_the_search_path_are_found_without_naming_their_schema(connection: Connection) -> None:
    runner.migrate(connection, schema="queue")
    connection.execute(text("SET LOCAL search_path = queue"))
    check_schema(connection)
    assert installed_version(connection) == LATEST


def test_tables_of_create_all_are_taken_on_trust(connection: Connection) -> None:
    metadata.create_all(connection)
    check_schema(connection)
    assert installed_version(connection) is None


def test_a_team_with_its_own_table_name_is_checked_by_that_name(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE errand (id bigint)"))
    check_schema(connection, job_table="errand")
    with pytest.raises(SchemaMismatch, match="no table task"):
        check_schema(connection, job_table="task")


@pytest.mark.parametrize("version", [LATEST, LATEST + 1])
def test_this_version_and_the_next_are_served(connection: Connection, version: int) -> None:
    runner.migrate(connection)
    connection.execute(text("UPDATE jobqueue_schema_version SET version = :version"), {"version": version})
    check_schema(connection)


@pytest.mark.parametrize(
    ("version", "remedy"), [(LATEST - 1, "upgrade the tables"), (LATEST + 2, "upgrade the package")]
)
def test_any_other_version_is_refused_with_both_numbers(connection: Connection, version: int, remedy: str) -> None:
    runner.migrate(connection)
    connection.execute(text("UPDATE jobqueue_schema_version SET version = :version"), {"version": version})
    with pytest.raises(SchemaMismatch, match=rf"version {version}; this release serves 1 and 2: {remedy}"):
        check_schema(connection)


def test_the_check_takes_three_statements(connection: Connection) -> None:
    runner.migrate(connection)
    sent: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    check_schema(connection)
    assert len(sent) == 3


async def test_an_async_application_migrates_and_checks_through_run_sync(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(runner.migrate, schema="queue")
        await connection.run_sync(check_schema, "queue")
