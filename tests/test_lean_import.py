"""Who only enqueues or works does not wait for what only migrations and the command line need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sa_jobqueue import migrations

HEAVY = "{'alembic', 'mako', 'pygments', 'rich', 'typer', 'pytest'}"


def in_a_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_package_imports_neither_alembic_nor_what_draws_tables() -> None:
    code = f"import sys, sa_jobqueue; sa_jobqueue.Worker; print({HEAVY} & set(sys.modules) or 'lean')"

    assert in_a_fresh_interpreter(code) == "lean"


def test_a_command_that_migrates_nothing_does_not_wait_for_alembic() -> None:
    code = "import sys, sa_jobqueue.cli.app; print({'alembic', 'mako'} & set(sys.modules) or 'lean')"

    assert in_a_fresh_interpreter(code) == "lean"


def test_the_steps_of_a_migration_are_where_they_were() -> None:
    said = in_a_fresh_interpreter(
        "from sa_jobqueue.migrations import *; from sa_jobqueue import migrations; "
        "print(upgrade.__name__, downgrade.__name__, migrations.upgrade is upgrade)"
    )

    assert said == "upgrade downgrade True"


def test_a_name_that_the_migrations_do_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sidegrade'"):
        getattr(migrations, "sidegrade")  # noqa: B009 - a name that type checkers refuse
