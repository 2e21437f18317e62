from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import typer
from sqlalchemy import create_engine, text

from sa_jobqueue import JobSession
from sa_jobqueue.cli.ages import parse_age

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run

KINDS = ("dedup-keys", "job-log", "rollup", "redriven-dead-letters", "open-dead-letters")
AGED = """
UPDATE jobqueue_dedup_key SET created_at = created_at - interval '100 days';
UPDATE jobqueue_job_log SET finished_at = finished_at - interval '100 days';
UPDATE jobqueue_rollup SET minute = minute - interval '100 days';
UPDATE jobqueue_dead_letter
SET died_at = died_at - interval '100 days', redriven_at = redriven_at - interval '100 days';
"""


@pytest.fixture
def old_rows(session: Session) -> None:
    """Of each kind one that is 100 days old; three of the job log."""
    jobs = JobSession(session, job_log=True)
    for _ in range(2):
        jobs.enqueue("t", max_attempts=1)
        jobs.reject(jobs.claim(), "x")
    jobs.redrive(limit=1)
    jobs.ack(jobs.claim())
    session.execute(
        text(
            "INSERT INTO jobqueue_rollup (minute, queue, task, metric, bucket, count) "
            "VALUES (date_trunc('minute', now()), 'q', 't', 'done', -1, 1)"
        )
    )
    session.execute(text(AGED))
    session.commit()


@pytest.mark.usefixtures("old_rows")
def test_prune_says_how_many_of_each_it_was_told_to_delete(command: Run) -> None:
    ages = [word for kind in KINDS for word in (f"--{kind}", "99d")]

    assert command("prune", *ages, "--json").json == {
        "pruned": {
            "dedup_keys": 1,
            "job_log": 3,
            "rollup": 1,
            "redriven_dead_letters": 1,
            "open_dead_letters": 1,
        }
    }
    assert set(command("prune", *ages, "--json").json["pruned"].values()) == {0}


@pytest.mark.usefixtures("old_rows")
@pytest.mark.parametrize("kind", KINDS)
def test_prune_deletes_what_is_named_and_old_enough(kind: str, command: Run) -> None:
    name = kind.replace("-", " ")

    assert command("prune", f"--{kind}", "101d").out == f"pruned: 0 {name}\n"
    assert command("prune", f"--{kind}", "14w", "--batch", "1").out in {f"pruned: {n} {name}\n" for n in (1, 3)}


def test_prune_deletes_nothing_unless_it_is_told_what(command: Run) -> None:
    said = command("prune", code=2).err
    assert all(f"--{kind}" in said for kind in KINDS)


@pytest.mark.parametrize("age", ["90", "d", "-1d", "1.5d", "3m", "9 months", "", "99999999999d"])
def test_an_age_without_a_unit_that_is_known_is_refused(age: str, command: Run) -> None:
    assert "such as 90d" in " ".join(command("prune", "--job-log", age, code=2).err.replace("│", " ").split())


@pytest.mark.parametrize("age", ["0d", "101w" + "0" * 4, "6000w"])
def test_an_age_that_is_out_of_range_is_refused(age: str, command: Run) -> None:
    command("prune", "--job-log", age, code=2)


def test_ages_are_read_as_people_write_them() -> None:
    assert [parse_age(age) for age in ("45s", "30min", "12h", "90d", "2w", " 1 D ")] == [
        timedelta(seconds=45),
        timedelta(minutes=30),
        timedelta(hours=12),
        timedelta(days=90),
        timedelta(weeks=2),
        timedelta(days=1),
    ]
    with pytest.raises(typer.BadParameter, match="write a number and one of s, min, h, d, w"):
        parse_age("90")


def test_prune_finds_the_tables_in_a_schema_with_a_name_that_must_be_quoted(
    command: Run, empty_database_url: str
) -> None:
    schema = "Our 'jobs'"
    command("migrate", "--url", empty_database_url, "--schema", schema)
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(text(f'SET search_path TO "{schema}"'))
        rows = "SELECT 't', 'k' || n, NULL, now() - interval '2 days' FROM generate_series(1, 300) AS n"
        connection.execute(text(f"INSERT INTO jobqueue_dedup_key {rows}"))
    engine.dispose()

    there = ("--url", empty_database_url, "--schema", schema)
    assert command("prune", "--dedup-keys", "1d", "--batch", "50", *there, "--json").json["pruned"] == {
        "dedup_keys": 300
    }


def test_a_prune_that_was_cut_short_says_what_is_done_and_fails(command: Run, session: Session) -> None:
    session.execute(
        text(
            "INSERT INTO jobqueue_dedup_key VALUES ('t', 'k', NULL, now() - interval '2 days');"
            "INSERT INTO jobqueue_job_log (job_id, queue, task, attempt, outcome, enqueued_at, finished_at)"
            " VALUES (1, 'q', 't', 1, 'done', now(), now() - interval '2 days');"
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;"
            "CREATE TRIGGER refuse BEFORE DELETE ON jobqueue_job_log FOR EACH ROW EXECUTE FUNCTION refuse();"
        )
    )
    session.commit()

    ran = command("prune", "--job-log", "1d", "--dedup-keys", "1d", "--json", code=1)

    assert ran.json == {"pruned": {"dedup_keys": 1, "job_log": 0}}
    assert "not this one" in ran.err
    assert len(ran.err.splitlines()) == 1
