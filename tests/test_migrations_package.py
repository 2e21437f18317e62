"""The revisions reach those who install the package, and the developer's own Alembic environment works."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from sa_jobqueue.migrations import runner
from sa_jobqueue.migrations.steps import STEPS
from tests.host_app import ROOT, documented, environment, host_app

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it under a path with a space; it is what a pure wheel's installer does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    target = folder / "site packages"
    zipfile.ZipFile(wheel).extractall(target)
    return target


def modules(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in (root / "sa_jobqueue/migrations").rglob("*.py")}


def test_the_wheel_ships_one_package_with_every_module_of_the_migrations(installed: Path) -> None:
    source = modules(ROOT)
    assert f"sa_jobqueue/migrations/versions/sajq_{len(STEPS):04}_first_tables.py" in source
    assert modules(installed) == source
    assert [path.name for path in installed.iterdir() if path.suffix != ".dist-info"] == ["sa_jobqueue"]


def test_an_installed_package_migrates_from_a_path_with_a_space(installed: Path, tmp_path: Path) -> None:
    code = "import sa_jobqueue.migrations.runner as r; print(r.__file__); print(r.script())"
    environ = environment(installed)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    where, script = done.stdout.split("\n", 1)
    assert where.startswith(str(installed))
    assert script == runner.script() + "\n"


def test_an_installed_branch_is_found_from_a_path_with_a_space(installed: Path, tmp_path: Path) -> None:
    (locations,) = documented("The packaged branch", "ini")
    folder = tmp_path / "an application"
    app = host_app(folder, "postgresql+psycopg://", ini=locations, package=installed)
    assert "sajq_0001 (sa_jobqueue) (head)" in app.alembic("heads")
    assert str(installed) in app.alembic("show", "sa_jobqueue@head")


def test_the_developers_environment_is_no_package_and_does_not_hide_alembic() -> None:
    assert not (ROOT / "alembic/__init__.py").exists()
    code = "import alembic, alembic.command; print(alembic.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert not done.stdout.startswith(str(ROOT / "alembic"))


def test_the_revisions_are_one_line_with_an_id_per_step_that_fits_alembics_column() -> None:
    folder = ROOT / "sa_jobqueue/migrations"
    history = ScriptDirectory(folder, version_locations=[folder / "versions"]).walk_revisions()
    ids = [revision.revision for revision in history][::-1]
    assert ids == [f"sajq_{step.version:04}" for step in STEPS]
    assert max(map(len, ids)) <= 32


def test_alembic_check_of_a_developer_finds_the_models_migrated(empty_database_url: str) -> None:
    engine = create_engine(empty_database_url)
    runner.migrate(engine)
    engine.dispose()
    environ = {**environment(ROOT), "SA_JOBQUEUE_URL": empty_database_url}
    command = [sys.executable, "-m", "alembic", "check"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert "No new upgrade operations detected" in done.stdout, done.stdout + done.stderr
