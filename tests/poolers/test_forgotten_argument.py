"""Behind a pooler in transaction mode, without the argument that the engine needs there: an error that names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from sa_jobqueue import Job, JobSession, TaskRegistry, WorkerMisconfigured
from tests.cli.conftest import run
from tests.proofs.app import QUEUE
from tests.proofs.crew import Crew, Events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer
    from tests.cli.conftest import Run

__all__ = ["run"]


@pytest.fixture
def preparing(pooled_url: str, pooled_engine: Engine) -> Iterator[Engine]:  # noqa: ARG001 - makes the tables
    engine = create_engine(pooled_url, pool_size=20)
    yield engine
    engine.dispose()


def test_a_worker_refuses_to_claim_with_an_error_that_names_the_argument(
    tasks: TaskRegistry, preparing: Engine, enqueue: Callable[..., EnqueuedJob], events: Events, observer: Observer
) -> None:
    tasks.task(queue=QUEUE, name="quick")(lambda _session: None)
    job = enqueue("quick")
    with pytest.raises(WorkerMisconfigured, match="prepare_threshold"):
        Crew(tasks, preparing, events).drain()

    row = observer.job(job.id)
    assert row is not None
    assert (row.status, row.attempt, events.all) == ("queued", 0, [])


def test_the_doctor_warns_of_it_and_is_content_with_the_argument_in_the_url(
    run: Run, preparing: Engine, database_url: str
) -> None:
    through = preparing.url.render_as_string(hide_password=False)

    assert pooler_check(run, database_url) == ("ok", "none")
    assert pooler_check(run, through)[0] == "warn"
    assert pooler_check(run, f"{through}?prepare_threshold=none")[0] == "ok"
    assert "a number or none" in run("doctor", "--url", f"{through}?prepare_threshold=x", code=2).err


def test_the_command_line_serves_through_it_with_the_argument_in_the_url(
    run: Run, pooled_url: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pooled_shop.py").write_text(
        "from sa_jobqueue import TaskRegistry\ntasks = TaskRegistry()\n@tasks.task\ndef quick(session): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(50):
        JobSession(session).enqueue("quick")
    session.commit()

    run("worker", "pooled_shop:tasks", "--until-empty", "--url", f"{pooled_url}?prepare_threshold=none")

    assert session.query(Job).count() == 0


def pooler_check(run: Run, url: str) -> tuple[str, str]:
    findings = run("doctor", "--url", url, "--json").json["findings"]
    return next((each["level"], each["seen"]) for each in findings if each["check"] == "pooler")
