from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Query = Callable[[str], set[str]]

DEMO = [sys.executable, "-m", "sa_jobqueue.cli", "demo"]
DATABASES = "SELECT datname FROM pg_database WHERE datname LIKE 'sa_jobqueue_demo_%'"


@pytest.fixture
def admin(empty_database_url: str) -> Iterator[Query]:
    """Ask the server that ``--url`` names, from a database of this test's own."""
    engine = create_engine(empty_database_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield lambda query: set(connection.scalars(text(query)))
    engine.dispose()


def kept(figures: dict[str, float]) -> bool:
    return (figures["lost"], figures["duplicate_effects"], figures["unfinished"]) == (0, 0, 0)


def test_the_demo_keeps_the_promise_on_an_embedded_server() -> None:
    done = subprocess.run([*DEMO, "--json"], capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert kept(figures)
    assert (figures["deliveries"], figures["enqueued"], figures["effects"], figures["dead_letters"]) == (60, 68, 59, 1)
    assert (figures["killed"], figures["duplicates_suppressed"]) == (1, 8)
    assert figures["requeued"] >= 1
    assert figures["retries"] >= 5


def test_the_demo_on_a_given_server_leaves_nothing_there(empty_database_url: str, admin: Query) -> None:
    before = admin(DATABASES)
    command = [*DEMO, "--url", empty_database_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    assert "kept: every delivery had exactly one effect or is a dead letter" in done.stdout
    assert admin(DATABASES) <= before
    assert admin("SELECT relname FROM pg_stat_user_tables") == set()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_in_the_middle_leaves_neither_workers_nor_tables(
    empty_database_url: str, admin: Query, name: str, code: int
) -> None:
    with at_work(empty_database_url, admin) as (demo, database):
        demo.send_signal(signal.Signals[name])

        assert demo.wait(20) == code
        assert workers_of(database) == set()
        assert database not in admin(DATABASES)


def test_the_workers_do_not_outlive_a_demo_that_is_killed(empty_database_url: str, admin: Query) -> None:
    with at_work(empty_database_url, admin) as (demo, database):
        demo.kill()
        demo.wait(10)

        wait_until(lambda: not workers_of(database), what="the end of the workers")
        admin_drop(empty_database_url, database)


@contextmanager
def at_work(url: str, admin: Query) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A demo whose workers are connected, and the name of its database."""
    before = admin(DATABASES)
    null = subprocess.DEVNULL
    with subprocess.Popen([*DEMO, "--url", url], stdout=null, stderr=null, start_new_session=True) as demo:
        try:
            wait_until(lambda: admin(DATABASES) - before, timeout=30, what="the demo's database")
            (database,) = admin(DATABASES) - before
            wait_until(lambda: len(workers_of(database)) == 2, timeout=30, what="two workers")
            yield demo, database
        finally:
            demo.kill()


def workers_of(database: str) -> set[int]:
    """Processes whose environment names the database; the demo hands its URL to its workers that way."""
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if database.encode() in environment.read_bytes():
                found.add(int(environment.parent.name))
        except OSError:
            continue
    return found - {os.getpid()}


def admin_drop(url: str, database: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {database} WITH (FORCE)"))
    engine.dispose()
