from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue.cli.database import find_url
from sa_jobqueue.cli.problems import Problem

if TYPE_CHECKING:
    from tests.cli.conftest import Run


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_url_without_a_driver_means_psycopg(scheme: str) -> None:
    url = find_url(f"{scheme}://ann:pw@db.example:6543/shop?sslmode=require", {})

    expected = "postgresql+psycopg://ann:pw@db.example:6543/shop?sslmode=require"
    assert url.render_as_string(hide_password=False) == expected


def test_the_option_goes_before_our_variable_and_that_before_the_common_one() -> None:
    environ = {"SA_JOBQUEUE_URL": "postgres://ours/db", "DATABASE_URL": "postgres://common/db"}

    assert find_url("postgres://option/db", environ).host == "option"
    assert find_url(None, environ).host == "ours"
    assert find_url(None, environ | {"SA_JOBQUEUE_URL": ""}).host == "common"


@pytest.mark.parametrize(
    "text", ["postgresql+asyncpg://u:S3CRET@h/d", "sqlite://", "u:S3CRET@h", "postgres://u:S3CRET@h:x/d"]
)
def test_a_url_that_psycopg_cannot_serve_is_refused_without_showing_its_password(text: str) -> None:
    with pytest.raises(Problem) as refused:
        find_url(None, {"DATABASE_URL": text})

    assert "DATABASE_URL" in str(refused.value)
    assert "S3CRET" not in str(refused.value)


def test_without_any_url_one_line_says_where_it_may_come_from(run: Run) -> None:
    err = run("stats", code=2).err

    assert err.count("\n") == 1
    assert all(source in err for source in ("--url", "SA_JOBQUEUE_URL", "DATABASE_URL"))


def test_a_server_that_is_not_there_is_one_line_and_no_traceback(run: Run) -> None:
    err = run("jobs", "--url", "postgresql://u:S3CRET@127.0.0.1:1/x", code=1).err

    assert err.startswith("sa-jobqueue: cannot reach the database: ")
    assert err.count("\n") == 1
    assert "S3CRET" not in err


@pytest.mark.parametrize("command", [["stats"], ["jobs"], ["dead"], ["top"], ["enqueue", "charge"]])
def test_a_database_without_our_tables_is_told_to_migrate(
    run: Run, empty_database_url: str, command: list[str]
) -> None:
    err = run(*command, "--url", empty_database_url, code=1).err

    assert "sa-jobqueue migrate" in err
    assert err.count("\n") == 1
