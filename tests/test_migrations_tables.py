"""The steps make what the models declare: the server's catalogs say so, online and by script."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, inspect, make_url, text

from sa_jobqueue.migrations import installed_version, runner
from sa_jobqueue.models import metadata
from tests.catalog import catalog, tables
from tests.host_app import run_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

in_each_schema = pytest.mark.parametrize("schema", [None, "queue"], ids=["default schema", "schema queue"])


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def declared(engine: Engine, schema: str | None) -> dict[str, list[tuple[object, ...]]]:
    """Return the catalogs of what ``create_all`` makes, and leave nothing behind."""
    with engine.connect() as connection:
        if schema is not None:
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
        translated = connection.execution_options(schema_translate_map={None: schema})
        metadata.create_all(translated)
        found = catalog(connection, schema or "public")
        connection.rollback()
    return found


def migrated(engine: Engine, schema: str | None) -> dict[str, list[tuple[object, ...]]]:
    with engine.connect() as connection:
        return catalog(connection, schema or "public")


@in_each_schema
def test_migrated_tables_equal_those_of_create_all(empty: Engine, schema: str | None) -> None:
    expected = declared(empty, schema)
    runner.migrate(empty, schema=schema)
    found = migrated(empty, schema)
    assert len(expected["storage"]) == 6
    for part in expected:
        assert found[part] == expected[part], part


@in_each_schema
def test_up_down_and_up_again_gives_the_same_tables(empty: Engine, schema: str | None) -> None:
    runner.migrate(empty, schema=schema)
    first = migrated(empty, schema)
    runner.rollback(empty, schema=schema, target="base")
    assert tables(empty.url.render_as_string(hide_password=False), schema or "public") == {
        "sa_jobqueue_alembic_version"
    }
    runner.migrate(empty, schema=schema)
    assert migrated(empty, schema) == first


@in_each_schema
def test_an_sql_script_builds_the_tables_that_an_online_run_builds(empty: Engine, schema: str | None) -> None:
    expected = declared(empty, schema)
    run_script(empty.url.render_as_string(hide_password=False), runner.script(schema=schema))
    assert migrated(empty, schema) == expected
    with empty.connect() as connection:
        assert installed_version(connection, schema) == 1
        assert runner.current(connection, schema=schema) == "sajq_0001"


@in_each_schema
def test_an_sql_script_for_the_way_down_leaves_no_table_of_ours(empty: Engine, schema: str | None) -> None:
    run_script(empty.url.render_as_string(hide_password=False), runner.script(schema=schema))
    run_script(empty.url.render_as_string(hide_password=False), runner.script("head:base", down=True, schema=schema))
    # Some releases of Alembic end such a script with the drop of their version table
    assert tables(empty.url.render_as_string(hide_password=False), schema or "public") <= {
        "sa_jobqueue_alembic_version"
    }
    runner.migrate(empty, schema=schema)


def test_a_script_runs_through_psql_without_an_error(empty_database_url: str) -> None:
    psql = shutil.which("psql", path=os.environ.get("SA_JOBQUEUE_PG_BIN")) or shutil.which("psql")
    if psql is None:
        pytest.skip("no psql on PATH or in SA_JOBQUEUE_PG_BIN; the same scripts run through psycopg above")
    address = make_url(empty_database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    command = [psql, "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet", address]
    for script in (runner.script(schema="queue"), runner.script("head:base", down=True, schema="queue")):
        done = subprocess.run(command, input=script, text=True, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_schema_with_an_awkward_name_is_made_online_and_by_script(empty: Engine) -> None:
    awkward = 'we:ird "queue" 100%'
    runner.migrate(empty, schema=awkward)
    online = migrated(empty, awkward)
    runner.rollback(empty, schema=awkward, target="base")
    with empty.begin() as connection:
        connection.exec_driver_sql('DROP SCHEMA "we:ird ""queue"" 100%%" CASCADE')
    run_script(empty.url.render_as_string(hide_password=False), runner.script(schema=awkward))
    assert migrated(empty, awkward) == online
    assert awkward in inspect(empty).get_schema_names()


def test_a_role_that_may_not_create_schemas_can_migrate_into_one_that_it_was_given(empty: Engine) -> None:
    with empty.connect() as connection:
        connection.execute(text("CREATE ROLE sajq_tenant"))
        connection.execute(text("CREATE SCHEMA queue AUTHORIZATION sajq_tenant"))
        connection.execute(text("SET LOCAL ROLE sajq_tenant"))
        runner.migrate(connection, schema="queue")
        assert installed_version(connection, "queue") == 1
        connection.rollback()
