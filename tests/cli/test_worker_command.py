from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from sa_jobqueue import DedupKey, Job, JobSession
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run

HANDLERS = """
import threading
from sa_jobqueue import TaskRegistry, Worker
tasks, nothing = TaskRegistry(), TaskRegistry()
@tasks.task
def quick(session): ...
@tasks.task
def hang(session): threading.Event().wait()
@tasks.task(queue="mail")
async def send(session): ...
"""

READY = """
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import sessionmaker
from {app} import TaskRegistry, Worker, quick
some = TaskRegistry()
some.task(quick.function)
worker = Worker(some, sessionmaker(create_engine("{url}", poolclass=NullPool)))
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application's module in the working directory, under a name of this test's own."""
    name = f"app_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(HANDLERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


@contextmanager
def worker(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process, from the moment when it serves."""
    command = [sys.executable, "-m", "sa_jobqueue.cli", "worker", *arguments]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "SA_JOBQUEUE_URL": url, "PYTHONPATH": path}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        try:
            while not any("serving" in line for line in lines):
                line = process.stderr.readline()
                assert line, f"the worker ended before it served: {lines}"
                lines.append(line)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_idle_worker_ends_with_code_0_at_the_signal_and_not_at_its_next_poll(
    app: str, database_url: str, name: str
) -> None:
    with worker(database_url, f"{app}:tasks", "--poll-interval", "600", "--sweep-interval", "600") as process:
        process.send_signal(signal.Signals[name])

        assert process.wait(15) == 0


def test_a_second_signal_ends_it_now_and_gives_the_running_job_back(
    app: str, database_url: str, session: Session
) -> None:
    JobSession(session).enqueue("hang")
    session.commit()
    with worker(database_url, f"{app}:tasks", "--grace", "600") as process:
        wait_until(lambda: status(session) == "claimed", what="the claim")
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()

        assert process.wait(10) == 0
    assert status(session) == "queued"
    assert session.scalars(select(Job.attempt)).one() == 0


def test_until_empty_runs_sync_and_async_jobs_of_all_queues_and_ends(command: Run, app: str, session: Session) -> None:
    jobs = JobSession(session)
    made = [jobs.enqueue("quick").id, jobs.enqueue("send", queue="mail").id]
    session.commit()

    command("worker", f"{app}:tasks", "--until-empty")

    assert session.scalars(select(Job.id)).all() == []
    assert session.scalars(select(DedupKey.job_id).order_by(DedupKey.job_id)).all() == made


def test_only_the_named_queues_are_served(command: Run, app: str, session: Session) -> None:
    JobSession(session).enqueue("quick")
    JobSession(session).enqueue("send", queue="mail")
    session.commit()

    command("worker", f"{app}:tasks", "--queue", "mail", "--until-empty")

    assert session.scalars(select(Job.queue)).all() == ["default"]


@pytest.mark.parametrize(
    ("target", "code", "told"),
    [
        ("{app}", 2, "myapp.jobs:tasks"),
        ("{app}:missing", 2, "it has nothing, tasks"),
        ("{app}:HANDLERS", 2, "has no HANDLERS"),
        ("{app}:threading", 2, "not a TaskRegistry or Worker"),
        ("{app}:nothing", 1, "has no tasks"),
    ],
)
def test_a_target_that_is_no_worker_is_one_line_that_names_the_fix(
    command: Run, app: str, target: str, code: int, told: str
) -> None:
    err = command("worker", target.format(app=app), code=code).err

    assert told in err
    assert err.count("\n") == 1


def test_a_module_that_does_not_import_ends_with_its_traceback(command: Run, app: str, tmp_path: Path) -> None:
    (tmp_path / f"broken_{app}.py").write_text("def f():\n    return 1 / 0\nf()\n")

    err = command("worker", f"broken_{app}:tasks", code=1).err

    assert "return 1 / 0" in err
    assert err.splitlines()[-1].startswith(f"sa-jobqueue: cannot import broken_{app}: ZeroDivisionError")


def test_a_ready_worker_is_run_as_it_is_and_takes_no_settings(
    command: Run, app: str, tmp_path: Path, session: Session, database_url: str
) -> None:
    ready = READY.format(app=app, url=database_url)
    (tmp_path / f"ready_{app}.py").write_text(ready)
    JobSession(session).enqueue("quick")
    session.commit()

    err = command("worker", f"ready_{app}:worker", "--queue", "mail", "--concurrency", "2", code=2).err
    command("worker", f"ready_{app}:worker", "--until-empty")

    assert "drop --queue, --concurrency" in err
    assert session.scalars(select(Job.id)).all() == []


def status(session: Session) -> str | None:
    session.rollback()
    return session.scalars(select(Job.status)).one_or_none()
