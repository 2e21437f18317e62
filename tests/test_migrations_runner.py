"""The package's own command: many at once, in the caller's transaction, and never over tables that came another way."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import column, create_engine, insert, select, table, text

from sa_jobqueue.errors import SchemaMismatch, UnsupportedDatabase
from sa_jobqueue.migrations import MigrationBlocked, installed_version, runner
from sa_jobqueue.models import Job, SchemaVersion, metadata
from tests.catalog import tables
from tests.host_app import ROOT, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

ONE_RUN = """
import sys
from sqlalchemy import create_engine
from sa_jobqueue.migrations import runner
engine = create_engine(sys.argv[1])
engine.connect().close()
print("ready", flush=True)
sys.stdin.readline()
runner.migrate(engine, schema=sys.argv[2] or None)
"""
RUNNER_TABLE = "sa_jobqueue_alembic_version"


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Engine]:
    engine = create_engine(empty_database_url)
    yield engine
    engine.dispose()


def starting(url: str, schema: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ONE_RUN, url, schema]
    return subprocess.Popen(command, env=environment(ROOT), text=True, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize("schema", ["", "queue"], ids=["default schema", "schema queue"])
def test_six_processes_that_migrate_at_once_all_succeed(empty: Engine, schema: str) -> None:
    url = empty.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        processes = [stack.enter_context(starting(url, schema)) for _ in range(6)]
        assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 6
        for process in processes:
            print("go", file=process.stdin, flush=True)
        outcomes = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 6, outcomes
    with empty.connect() as connection:
        stamps = table(RUNNER_TABLE, column("version_num"), schema=schema or None)
        assert connection.execute(select(stamps)).all() == [("sajq_0001",)]
        assert installed_version(connection, schema or None) == 1


def test_migrating_twice_changes_nothing_the_second_time(empty: Engine) -> None:
    runner.migrate(empty)
    with empty.begin() as connection:
        connection.execute(insert(Job), {"queue": "q", "task": "t"})
    runner.migrate(empty)
    with empty.connect() as connection:
        assert connection.scalars(select(Job.task)).all() == ["t"]


def test_tables_of_create_all_are_refused_with_advice_and_not_stamped(empty: Engine) -> None:
    metadata.create_all(empty)
    with pytest.raises(SchemaMismatch, match=r"create_all leaves them so.*migrate --stamp"):
        runner.migrate(empty)
    with empty.connect() as connection:
        assert connection.scalars(select(SchemaVersion.version)).all() == []
    assert RUNNER_TABLE not in tables(str(empty.url))


def test_stamping_adopts_tables_of_create_all_so_that_migrating_goes_on(empty: Engine) -> None:
    metadata.create_all(empty)
    runner.stamp(empty)
    runner.migrate(empty)
    with empty.connect() as connection:
        assert (installed_version(connection), runner.current(connection)) == (1, "sajq_0001")
    runner.rollback(empty, target="base")
    assert tables(str(empty.url)) == {RUNNER_TABLE}


def test_stamping_a_database_without_tables_is_refused(empty: Engine) -> None:
    with pytest.raises(SchemaMismatch, match="only complete tables of schema version 1"):
        runner.stamp(empty)
    assert tables(str(empty.url)) == set()


def test_tables_that_another_history_keeps_are_refused(empty: Engine) -> None:
    runner.migrate(empty)
    with empty.begin() as connection:
        connection.execute(text(f"DROP TABLE {RUNNER_TABLE}"))
    with pytest.raises(SchemaMismatch, match="already at schema version 1, migrated another way"):
        runner.migrate(empty)
    assert RUNNER_TABLE not in tables(str(empty.url))


def test_tables_that_were_dropped_by_hand_are_not_taken_for_migrated(empty: Engine) -> None:
    runner.migrate(empty)
    metadata.drop_all(empty)
    with pytest.raises(SchemaMismatch, match=f"drop {RUNNER_TABLE} too"):
        runner.migrate(empty)


def test_tables_of_a_newer_release_are_left_alone(empty: Engine) -> None:
    runner.migrate(empty)
    with empty.begin() as connection:
        connection.execute(text("UPDATE jobqueue_schema_version SET version = 2"))
        connection.execute(text("UPDATE sa_jobqueue_alembic_version SET version_num = 'sajq_0002'"))
    with pytest.raises(SchemaMismatch, match="schema version 2, of a newer release; this one knows 1"):
        runner.rollback(empty, target="base")


@pytest.mark.parametrize("before", [[], ["SELECT 1"]], ids=["fresh", "in a transaction"])
def test_with_a_connection_the_commit_is_left_to_the_caller(empty: Engine, before: list[str]) -> None:
    with empty.connect() as connection:
        for statement in before:
            connection.execute(text(statement))
        runner.migrate(connection)
        assert installed_version(connection) == 1
        connection.rollback()
    assert tables(str(empty.url)) == set()


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_connection_that_could_not_take_turns_is_refused_but_its_engine_works(empty: Engine, level: str) -> None:
    engine = empty.execution_options(isolation_level=level)
    with engine.connect() as connection, pytest.raises(UnsupportedDatabase, match="READ COMMITTED"):
        runner.migrate(connection)
    assert tables(str(empty.url)) == set()
    runner.migrate(engine)
    assert "jobqueue_job" in tables(str(empty.url))


def test_another_database_is_refused_before_any_statement() -> None:
    engine = create_engine("sqlite://")
    with pytest.raises(UnsupportedDatabase, match="this is sqlite"):
        runner.migrate(engine)
    engine.dispose()


@pytest.mark.parametrize("own", ["0", "17s"])
def test_the_lock_timeout_of_the_callers_transaction_is_as_before(empty: Engine, own: str) -> None:
    with empty.begin() as connection:
        connection.execute(text(f"SET lock_timeout = '{own}'"))
        runner.migrate(connection)
        assert connection.scalar(text("SHOW lock_timeout")) == own


def test_a_migration_that_meets_an_open_claim_gives_up_soon_with_advice(empty: Engine) -> None:
    runner.migrate(empty)
    with empty.connect() as claiming:
        claiming.execute(select(Job).with_for_update())
        with pytest.raises(MigrationBlocked, match=r"nothing was migrated: .* pg_stat_activity"):
            runner.rollback(empty, target="base")
    with empty.connect() as connection:
        assert (installed_version(connection), runner.current(connection)) == (1, "sajq_0001")


def test_a_session_with_a_shorter_lock_timeout_keeps_its_own(empty: Engine) -> None:
    runner.migrate(empty)
    with empty.connect() as claiming, empty.connect() as migrating:
        claiming.execute(select(Job).with_for_update())
        migrating.execute(text("SET lock_timeout = '50ms'"))
        migrating.execute(text("SET statement_timeout = '2500ms'"))
        with pytest.raises(MigrationBlocked):
            runner.rollback(migrating, target="base")
