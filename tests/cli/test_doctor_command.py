from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession
from sa_jobqueue.cli import checks
from tests.waiting import wait_until

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.cli.conftest import Run


def finding(ran: Any, check: str) -> dict[str, str]:
    return next(each for each in ran.json["findings"] if each["check"] == check)


def test_a_sound_database_passes_and_every_warning_has_an_advice(command: Run) -> None:
    report = command("doctor", "--json").json

    assert report["ok"] is True
    assert len(report["findings"]) >= 8
    assert all(each["advice"] for each in report["findings"] if each["level"] != "ok")


def test_missing_tables_fail_with_what_to_do(run: Run, empty_database_url: str) -> None:
    ran = run("doctor", "--url", empty_database_url, "--json", code=1)

    assert ran.json["ok"] is False
    assert finding(ran, "tables")["level"] == "fail"
    assert "sa-jobqueue migrate" in finding(ran, "tables")["advice"]


def test_tables_of_another_release_fail(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO jobqueue_schema_version (version) VALUES (99)"))

    assert "99" in finding(command("doctor", "--json", code=1), "tables")["seen"]


def test_autovacuum_that_is_off_for_the_job_table_fails(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobqueue_job SET (autovacuum_enabled = off)"))

    seen = finding(command("doctor", "--json", code=1), "autovacuum")
    assert seen["level"] == "fail"
    assert "RESET (autovacuum_enabled)" in seen["advice"]


@pytest.mark.parametrize(
    ("setting", "value", "check", "level"),
    [
        ("default_transaction_isolation", "serializable", "isolation level", "warn"),
        ("idle_in_transaction_session_timeout", "60000", "idle timeout", "ok"),
        ("idle_in_transaction_session_timeout", "0", "idle timeout", "warn"),
    ],
)
def test_settings_of_the_server_are_judged(
    run: Run, database_url: str, setting: str, value: str, check: str, level: str
) -> None:
    url = f"{database_url}?options=-c{setting}%3D{value}"

    assert finding(run("doctor", "--url", url, "--json"), check)["level"] == level


def test_the_oldest_snapshot_is_named_with_its_owner(command: Run, engine: Engine) -> None:
    with engine.connect() as holder:
        holder.execution_options(isolation_level="REPEATABLE READ").execute(text("SELECT count(*) FROM jobqueue_job"))
        pid = holder.scalar(text("SELECT pg_backend_pid()"))

        assert f"pid {pid}" in finding(command("doctor", "--json"), "oldest snapshot")["seen"]


@pytest.mark.parametrize(("age", "level"), [(60.0, "ok"), (0.0, "warn")])
def test_a_row_that_is_parked_in_an_idle_transaction_is_told_with_its_session_and_the_remedy(
    age: float, level: str, command: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_LONG", age)
    with Session(engine) as sleeper:
        jobs = JobSession(sleeper)
        jobs.enqueue("t")
        sleeper.commit()
        assert jobs.claim() is not None
        pid = sleeper.scalar(text("SELECT pg_backend_pid()"))
        parked = finding(command("doctor", "--json"), "parked rows")
        assert (parked["level"], f"(pid {pid}, " in parked["seen"]) == (level, True)
        assert (f"pg_terminate_backend({pid})" in parked["advice"]) == (level == "warn")
    assert finding(command("doctor", "--json"), "parked rows")["seen"] == "none"


def test_a_transaction_that_only_reads_jobs_or_idles_elsewhere_parks_nothing(command: Run, engine: Engine) -> None:
    with engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM jobqueue_job"))
        assert finding(command("doctor", "--json"), "parked rows")["seen"] == "none"


def test_dead_rows_of_the_job_table_are_counted(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO jobqueue_job (queue, task) SELECT 'q', 't' FROM generate_series(1, 40)"))
        connection.execute(text("DELETE FROM jobqueue_job"))
        connection.execute(text("SELECT pg_stat_force_next_flush()"))

    wait_until(
        lambda: finding(command("doctor", "--json"), "dead rows")["seen"] == "40 dead, 0 live", what="the statistics"
    )
