from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, make_url, text

from sa_jobqueue import JobSession, TaskRegistry, Worker
from sa_jobqueue.cli.tune import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine, TextClause
    from sqlalchemy.orm import Session
    from sqlalchemy.orm import sessionmaker as session_factory

    from tests.cli.conftest import Run

RUNS = 150
COUNT = text(
    "INSERT INTO jobqueue_rollup (minute, queue, task, metric, bucket, count) VALUES (date_trunc('minute', "
    "statement_timestamp()) - :ago * interval '1 minute', :queue, :task, :metric, :bucket, :count)"
)

TELLING = (
    "CREATE FUNCTION meddle() RETURNS bool LANGUAGE plpgsql AS "
    "'BEGIN RAISE ''given up after %'', current_setting(''statement_timeout''); END'"
)
MEDDLING = (
    "CREATE FUNCTION meddle() RETURNS bool LANGUAGE sql AS 'DELETE FROM jobqueue_job; SELECT true'",
    "ALTER TABLE jobqueue_dead_letter RENAME TO dead",
    "CREATE VIEW jobqueue_dead_letter AS SELECT dead.* FROM dead WHERE meddle()",
)


def told(ran: Any, setting: str) -> dict[str, Any]:
    return next(each for each in ran.json["recommendations"] if each["setting"] == setting)


def revoke(table: str, url: str) -> TextClause:
    return text(f"REVOKE ALL ON {table} FROM {make_url(url).username}")


def settings(ran: Any) -> set[str]:
    return {each["setting"] for each in ran.json["recommendations"]}


def count(engine: Engine, *counted: tuple[str, int, int], ago: int = 0, task: str = "pay", queue: str = "q") -> None:
    rows = [
        {"ago": ago, "queue": queue, "task": task, "metric": metric, "bucket": bucket, "count": count}
        for metric, bucket, count in counted
    ]
    with engine.begin() as connection:
        connection.execute(COUNT, rows)


@pytest.fixture
def limited(engine: Engine, database_url: str) -> Iterator[str]:
    """The URL of a role that may read our tables and nothing else, and write nowhere."""
    role = f"reader_{make_url(database_url).database}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'"))
        connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"))
    yield make_url(database_url).set(username=role, password=role).render_as_string(hide_password=False)
    with engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))


def test_it_reads_what_a_worker_has_counted(command: Run, sessionmaker: session_factory[Session]) -> None:
    tasks = TaskRegistry()

    @tasks.task(queue="billing")
    def charge(_session: Session, n: int) -> None:
        """Do nothing."""

    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([charge.new_job(n=n) for n in range(RUNS)])
    Worker(tasks, sessionmaker, name="w-1").run(until_empty=True)

    limit = told(command("tune", "--json"), "time_limit")
    assert (limit["scope"], limit["name"], limit["now"], limit["change"]) == ("task", "charge", None, True)
    assert told(command("tune", "--json"), "concurrency")["figures"]["runs_per_second"] > 0


def test_a_quiet_queue_is_told_that_there_is_too_little_to_go_by(command: Run, engine: Engine) -> None:
    count(engine, ("done", -1, 99), ("seconds", 3, 99))
    ran = command("tune", "--json")

    assert ran.json["too_few_runs"] == [{"task": "pay", "runs": 99, "needed": 100}]
    assert not {each["scope"] for each in ran.json["recommendations"]} & {"task", "workers"}


def test_what_lies_before_the_window_is_not_counted(command: Run, engine: Engine) -> None:
    count(engine, ("done", -1, 500), ("seconds", 3, 500), ago=90)

    assert "time_limit" not in settings(command("tune", "--json"))
    assert "time_limit" in settings(command("tune", "--json", "--window", "7200"))


def test_time_in_which_nothing_was_counted_does_not_thin_out_the_rate(command: Run, engine: Engine) -> None:
    count(engine, ("done", -1, 1_200), ("seconds", 0, 1_200), ago=10)
    ran = command("tune", "--json", "--window", "86400")

    assert 600 <= ran.json["counted_seconds"] < 700
    assert 1.7 < told(ran, "concurrency")["figures"]["runs_per_second"] <= 2


def test_the_visibility_timeout_is_seen_on_a_fresh_lease_and_not_on_one_that_beats_have_extended(
    command: Run, engine: Engine, session: Session
) -> None:
    count(engine, ("done", -1, 500), ("seconds", 3, 500))
    jobs = JobSession(session)
    jobs.enqueue("pay")
    job = jobs.claim(visibility_timeout=600)
    session.commit()
    assert job is not None
    assert told(command("tune", "--json"), "visibility_timeout")["now"] == "10 min"

    session.execute(text("UPDATE jobqueue_job SET claimed_at = claimed_at - interval '5 minutes'"))
    session.commit()
    assert "visibility_timeout" not in settings(command("tune", "--json"))


def test_a_registry_tells_all_settings_of_its_tasks(
    command: Run, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(engine, ("done", -1, 500), ("seconds", 3, 500))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned.py").write_text(
        "from sa_jobqueue import TaskRegistry\ntasks = TaskRegistry()\n"
        "@tasks.task(visibility_timeout=600, time_limit=90)\ndef pay(session): ...\n"
    )
    ran = command("tune", "--json", "--tasks", "tuned:tasks")

    assert told(ran, "visibility_timeout")["now"] == "10 min"
    assert "time_limit" not in settings(ran)


def test_a_batch_has_a_slot_for_all_its_jobs(
    command: Run, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(engine, ("done", -1, 5_000), ("seconds", 8, 5_000))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batches.py").write_text(
        "from sa_jobqueue import TaskRegistry\ntasks = TaskRegistry()\n"
        "@tasks.task(batch=50)\ndef pay(session, jobs): ...\n"
    )
    alone = told(command("tune", "--json"), "concurrency")["figures"]["busy"]
    shared = told(command("tune", "--json", "--tasks", "batches:tasks"), "concurrency")["figures"]["busy"]

    assert alone == pytest.approx(50 * shared, rel=0.1)  # the clock went on between the two


def test_waiting_jobs_and_deaths_are_read(command: Run, engine: Engine, session: Session) -> None:
    count(engine, ("done", -1, 500), ("retried", -1, 40), ("seconds", 3, 540), queue="default")
    jobs = JobSession(session)
    for _ in range(10):
        jobs.enqueue("pay", max_attempts=1)
        job = jobs.claim()
        assert job is not None
        jobs.fail(job, "no")
    jobs.enqueue("pay")
    session.execute(text("UPDATE jobqueue_dead_letter SET attempt = 5"))
    session.execute(text("UPDATE jobqueue_job SET visible_at = visible_at - interval '10 minutes'"))
    session.commit()
    ran = command("tune", "--json")

    assert told(ran, "max_attempts")["figures"]["retries_of_the_dead"] == 40
    assert told(ran, "slots")["figures"]["oldest"] >= 600


def test_storage_parameters_that_were_reset_are_wanted_back(command: Run, engine: Engine) -> None:
    assert "fillfactor" not in settings(command("tune", "--json"))
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobqueue_job RESET (fillfactor)"))
    told_now = told(command("tune", "--json"), "fillfactor")

    assert (told_now["name"], told_now["now"], told_now["recommended"]) == ("jobqueue_job", "default", "80")


def test_settings_of_the_server_are_those_of_the_role_that_asks(run: Run, database_url: str) -> None:
    ran = run("tune", "--json", "--url", f"{database_url}?options=-csynchronous_commit%3Doff")

    assert told(ran, "synchronous_commit")["now"] == "off"


def test_flushes_of_the_wal_are_asked_for_where_this_server_counts_them(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL track_wal_io_timing = on"))
        assert catalog.server(connection).flushes_timed
        assert (catalog.fsync_seconds(connection) or 1) > 0
    assert "track_wal_io_timing is off" in [each["why"] for each in command("tune", "--json").json["unseen"]]


@pytest.mark.parametrize("in_io", [0, 10**9], ids=["pg_stat_io", "pg_stat_wal"])
def test_the_time_of_a_flush_is_a_mean_in_seconds(in_io: int, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_WAL_IN_IO", in_io)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE pg_stat_wal AS SELECT 200 AS wal_sync, 800.0::float8 AS wal_sync_time"))
        connection.execute(
            text("CREATE TABLE pg_stat_io AS SELECT 'wal' AS object, 200 AS fsyncs, 800.0 AS fsync_time")
        )
        connection.execute(text("SET LOCAL search_path = public, pg_catalog"))
        assert catalog.fsync_seconds(connection) == 0.004


def test_the_share_of_keys_that_are_no_natural_ones_is_sampled(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO jobqueue_dedup_key (scope, key) VALUES ('t', 'order:1')"))
        connection.execute(
            text("INSERT INTO jobqueue_dedup_key (scope, key) SELECT 't', 'job#' || n FROM generate_series(1, 3) AS n")
        )
        assert catalog.own_keys(connection, catalog.tables(connection, None)) == 0.75
        assert catalog.own_keys(connection, {}) is None


def test_a_reader_is_enough_and_what_it_may_not_see_is_told(run: Run, engine: Engine, limited: str) -> None:
    count(engine, ("done", -1, 500), ("seconds", 3, 500))
    assert run("tune", "--json", "--url", limited).json["recommendations"]

    with engine.begin() as connection:
        connection.execute(text("REVOKE SELECT ON pg_stats FROM PUBLIC"))
        connection.execute(revoke("jobqueue_dead_letter", limited))
    ran = run("tune", "--json", "--url", limited)

    unseen = {each["what"]: each["why"] for each in ran.json["unseen"]}
    assert "permission denied" in unseen["dead letters"]
    assert "permission denied" in unseen["sizes and statistics of the tables"]
    assert told(ran, "time_limit")
    assert "not seen: dead letters" in run("tune", "--url", limited).out


def test_counters_that_may_not_be_read_are_one_line_of_error(run: Run, engine: Engine, limited: str) -> None:
    with engine.begin() as connection:
        connection.execute(revoke("jobqueue_rollup", limited))

    assert "permission denied for table jobqueue_rollup" in run("tune", "--url", limited, code=1).err


def test_tables_of_a_schema_are_found(run: Run, empty_database_url: str) -> None:
    run("migrate", "--schema", "quiet queue", "--url", empty_database_url)
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        connection.execute(text('ALTER TABLE "quiet queue".jobqueue_job RESET (fillfactor)'))
    engine.dispose()

    assert "fillfactor" in settings(run("tune", "--schema", "quiet queue", "--url", empty_database_url, "--json"))


def test_sizes_and_widths_are_those_of_the_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "an""other"'))
        connection.execute(text('CREATE TABLE "an""other".jobqueue_job AS SELECT n FROM generate_series(1, 3) AS n'))
        connection.execute(text('ANALYZE "an""other".jobqueue_job'))
        (job,) = catalog.tables(connection, 'an"other').values()

    assert (job.live, job.width, job.heap, job.options) == (3, 4, 8192, {})


def test_missing_tables_are_an_error_with_what_to_do(run: Run, empty_database_url: str) -> None:
    assert "sa-jobqueue migrate" in run("tune", "--url", empty_database_url, code=1).err


@pytest.mark.usefixtures("dead_job")
def test_for_people_it_is_a_table_with_reasons_and_no_arguments(command: Run, engine: Engine, session: Session) -> None:
    count(engine, ("done", -1, 500), ("seconds", 3, 500))
    JobSession(session).enqueue("pay", {"password": "S3CRET"})
    session.commit()
    out = command("tune").out

    assert out.splitlines()[0].split() == ["of", "setting", "now", "recommended", "why"]
    assert "a handler that hangs" in out
    assert "S3CRET" not in out + command("tune", "--json").out


@pytest.mark.usefixtures("dead_job")
def test_a_look_that_takes_long_is_given_up(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in (TELLING, *MEDDLING[1:]):
            connection.execute(text(statement))

    (unseen,) = (each for each in command("tune", "--json").json["unseen"] if each["what"] == "dead letters")
    assert unseen["why"] == "given up after 10s"


@pytest.mark.usefixtures("dead_job")
def test_the_server_would_not_let_it_change_anything(command: Run, engine: Engine) -> None:
    with engine.begin() as connection:
        for statement in MEDDLING:
            connection.execute(text(statement))

    (unseen,) = (each for each in command("tune", "--json").json["unseen"] if each["what"] == "dead letters")
    assert unseen["why"] == "cannot execute DELETE in a read-only transaction"
