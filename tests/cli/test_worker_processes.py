"""``sa-jobqueue worker --processes``: the command line of the supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from sa_jobqueue import DeadLetter, DedupKey, Job, JobSession

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.orm import Session

HANDLERS = """
import os
from sa_jobqueue import TaskRegistry
tasks, nothing = TaskRegistry(), TaskRegistry()
@tasks.task
def quick(session): ...
@tasks.task(visibility_timeout=1.0)
def poison(session): os.abort()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """The folder of an application, in a module ``shop``."""
    (tmp_path / "shop.py").write_text(HANDLERS)
    return tmp_path


def command(url: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "sa_jobqueue.cli", "worker", *arguments, "--url", url]


def test_two_processes_do_all_jobs_outlive_a_poisonous_one_and_end_with_code_0(
    app: Path, database_url: str, session: Session
) -> None:
    jobs = JobSession(session)
    good = [jobs.enqueue("quick").id for _ in range(10)]
    poison = jobs.enqueue("poison", max_attempts=2)
    session.commit()

    arguments = ("shop:tasks", "--processes", "2", "--concurrency", "1", "--until-empty")
    done = subprocess.run(
        command(database_url, *arguments), cwd=app, stderr=subprocess.PIPE, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was killed by SIGABRT; another one starts in") == 2
    assert session.scalars(select(Job.id)).all() == []
    assert session.scalars(select(DedupKey.job_id).order_by(DedupKey.job_id)).all() == good
    assert session.scalars(select(DeadLetter.job_id)).all() == [poison.id]


@pytest.mark.parametrize(
    ("target", "code", "told"), [("shop:missing", 2, "has no missing"), ("shop:nothing", 1, "has no tasks")]
)
def test_a_target_that_is_no_worker_ends_it_with_the_code_and_the_line_of_one_process(
    app: Path, database_url: str, target: str, code: int, told: str
) -> None:
    call = command(database_url, target, "--processes", "1")
    done = subprocess.run(call, cwd=app, stderr=subprocess.PIPE, text=True, timeout=100, check=False)

    assert done.returncode == code
    assert f"sa-jobqueue: {'module ' if code == 2 else ''}shop" in done.stderr
    assert told in done.stderr
    assert f"no process could begin to serve, see above; exit code {code}" in done.stderr


def test_a_signal_to_the_group_of_a_terminal_ends_it_with_code_0_and_no_traceback(app: Path, database_url: str) -> None:
    call = command(database_url, "shop:tasks", "--processes", "2", "--poll-interval", "600")
    with subprocess.Popen(call, cwd=app, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while sum("serving" in line for line in lines) < 2:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()

        assert process.wait(20) == 0
    assert "Traceback" not in rest
