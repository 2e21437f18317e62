from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, inspect

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def tables_of(url: str, schema: str | None = None) -> set[str]:
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names(schema))
    finally:
        engine.dispose()


def test_migrate_makes_the_tables_and_a_second_time_does_nothing(run: Run, empty_database_url: str) -> None:
    first = run("migrate", "--url", empty_database_url, "--json").json
    second = run("migrate", "--url", empty_database_url)

    assert (first["before"]["version"], first["after"]["version"]) == (None, first["latest"])
    assert "jobqueue_job" in tables_of(empty_database_url)
    assert "nothing to do" in second.out


def test_current_only_looks(run: Run, empty_database_url: str) -> None:
    assert run("migrate", "--current", "--url", empty_database_url, "--json").json["after"]["version"] is None
    assert tables_of(empty_database_url) == set()


def test_the_tables_go_into_the_schema_that_is_named_and_the_other_commands_find_them_there(
    run: Run, empty_database_url: str
) -> None:
    there = ["--url", empty_database_url, "--schema", "queue"]
    run("migrate", *there)
    run("enqueue", "charge", *there)

    assert len(run("jobs", *there, "--json").json["jobs"]) == 1
    assert run("doctor", *there, "--json").json["ok"] is True
    assert tables_of(empty_database_url) == set()
    assert "jobqueue_job" in tables_of(empty_database_url, "queue")


def test_sql_is_a_script_that_makes_the_same_tables(run: Run, empty_database_url: str) -> None:
    script = run("migrate", "--sql").out
    engine = create_engine(empty_database_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.connection.driver_connection.execute(script)
    engine.dispose()

    assert "nothing to do" in run("migrate", "--url", empty_database_url).out


def test_going_down_needs_to_be_told_how_far(run: Run, empty_database_url: str) -> None:
    run("migrate", "--url", empty_database_url)

    assert "--target" in run("migrate", "--down", "--url", empty_database_url, code=2).err
    run("migrate", "--down", "--target", "base", "--url", empty_database_url)
    assert "jobqueue_job" not in tables_of(empty_database_url)


def test_tables_of_create_all_are_refused_and_can_be_stamped(run: Run, database_url: str) -> None:
    assert "--stamp" in run("migrate", "--url", database_url, code=1).err
    assert run("migrate", "--stamp", "--url", database_url, "--json").json["after"]["revision"] is not None
    assert "nothing to do" in run("migrate", "--url", database_url).out


@pytest.mark.parametrize("mixed", [["--stamp", "--current"], ["--sql", "--stamp"], ["--target", "head", "--current"]])
def test_options_that_contradict_each_other_are_refused(run: Run, mixed: list[str]) -> None:
    assert "exclude each other" in run("migrate", *mixed, code=2).err


def test_a_revision_that_is_not_there_is_one_line(run: Run, empty_database_url: str) -> None:
    err = run("migrate", "--target", "sajq_9999", "--url", empty_database_url, code=2).err

    assert "sajq_9999" in err
    assert err.count("\n") == 1


def test_a_server_that_only_reads_is_one_line(run: Run, empty_database_url: str) -> None:
    reading = f"{empty_database_url}?options=-cdefault_transaction_read_only%3Don"

    err = run("migrate", "--url", reading, code=1).err

    assert "read-only" in err
    assert err.count("\n") == 1
