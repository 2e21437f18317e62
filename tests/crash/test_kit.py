"""The kit as its users have it: their own handler, their own table, and the documented example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import JobSession
from sa_jobqueue.testing.crash import WorkerProcesses, crash_points
from tests.docs.pages import ROOT, TUTORIAL, blocks

if TYPE_CHECKING:
    from tests.crash.ground import Ground

_PAGE = ROOT / "docs" / "how-to" / "prove-your-handler.md"
_DOCUMENTED = [
    "test_every_order_is_paid_once_whatever_kills_the_worker",
    "test_every_order_is_paid_once_whenever_the_worker_is_paused",
]


def test_the_documented_tests_are_two() -> None:
    (page,) = (block.text for block in blocks(_PAGE) if block.file == "test_charge.py")
    assert re.findall(r"^def (test_\w+)", page, re.MULTILINE) == _DOCUMENTED


@pytest.mark.timeout(600)
@pytest.mark.parametrize("test", _DOCUMENTED)
def test_a_documented_test_passes(test: str, empty_database_url: str, tmp_path: Path) -> None:
    for block in [*blocks(TUTORIAL), *blocks(_PAGE)]:
        if block.file in {"shop.py", "drains.py", "test_charge.py"}:
            (tmp_path / block.file).write_text(block.text)
    environment = {**os.environ, "DATABASE_URL": empty_database_url, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    make_shop = (
        "from sa_jobqueue import metadata; from shop import Base, engine; "
        "metadata.create_all(engine); Base.metadata.create_all(engine)"
    )
    subprocess.run([sys.executable, "-c", make_shop], cwd=tmp_path, env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_charge.py::{test}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_handler_that_commits_its_effect_apart_is_found_out(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    names = _prepare(ground, monkeypatch)

    def enqueue(session: Session) -> None:
        names.append(f"effect {len(names)}")
        JobSession(session).enqueue("write_apart", {"name": names[-1]}, queue="q")

    crashes = crash_points("tests.crash.app:run", enqueue=enqueue, sessions=sessionmaker(ground.engine), timeout=60)
    bad = next(crash for crash in crashes if len(ground.effects(names[-1])) != 1)
    assert str(bad).startswith("worker killed after COMMIT after INSERT effect of the handler")
    crashes.close()


def test_a_delivery_that_never_repeats_is_refused_with_the_reason(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(ground, monkeypatch)
    tasks = (name for name in ["fail_first", *["write"] * 100])

    def enqueue(session: Session) -> None:
        JobSession(session).enqueue(next(tasks), {"name": "x"}, queue="q")

    with pytest.raises(AssertionError, match=r"did not pass before ROLLBACK .*need a handler that does the same"):
        list(crash_points("tests.crash.app:run", enqueue=enqueue, sessions=sessionmaker(ground.engine), timeout=60))


def test_a_drain_that_cannot_be_imported_says_so() -> None:
    with pytest.raises(AssertionError, match=r"tests\.crash\.app:missing cannot be imported"):
        WorkerProcesses("tests.crash.app:missing")


def _prepare(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    url = ground.engine.url.render_as_string(hide_password=False)
    named = {"DATABASE_URL": url, "RUN": "tests.crash.app:work", "QUEUES": "q", "EVENTS": str(ground.events_file)}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    return []
