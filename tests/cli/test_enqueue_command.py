from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from sa_jobqueue import Job, metadata
from tests import own_models

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run

SHOP = """
from sa_jobqueue import TaskRegistry
tasks = TaskRegistry()
@tasks.task(queue="billing", max_attempts=9, dedup_key=lambda order_id: f"order:{order_id}")
def charge(session, order_id): ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of an application in the working directory, under a name of this test's own."""
    name = f"shop_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return f"{name}:tasks"


def test_enqueue_stores_the_job_with_all_that_was_said(command: Run, session: Session) -> None:
    options = ["--queue", "mail", "--priority", "-3", "--delay", "60", "--dedup-key", "d", "--unique-key", "u"]
    made = command("enqueue", "send", "--args", '{"to": "ann"}', *options, "--max-attempts", "2", "--json").json

    job = session.scalars(select(Job)).one()
    assert (job.id, job.status) == (made["id"], made["status"]) == (job.id, "scheduled")
    assert (job.task, job.args, job.queue, job.priority) == ("send", {"to": "ann"}, "mail", -3)
    assert (job.dedup_key, job.unique_key, job.max_attempts) == ("d", "u", 2)


def test_a_second_job_with_the_same_unique_key_is_the_first(command: Run) -> None:
    first = command("enqueue", "send", "--unique-key", "u", "--json").json
    second = command("enqueue", "send", "--unique-key", "u", "--json").json

    assert (first["created"], second["created"]) == (True, False)
    assert first["id"] == second["id"]


def test_a_named_registry_gives_queue_attempts_and_key(command: Run, session: Session, shop: str) -> None:
    command("enqueue", "charge", "--tasks", shop, "--args", '{"order_id": 7}')

    job = session.scalars(select(Job)).one()
    assert (job.queue, job.max_attempts, job.dedup_key) == ("billing", 9, "order:7")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["charge", "--args", "{order_id: 7}"], "--args is not JSON"),
        (["charge", "--args", "[7]"], "--args must be a JSON object"),
        (["charge", "--args", '{"a": [1, NaN]}'], "$.a[1] is nan"),
        (["charge", "--run-at", "tomorrow"], "2030-01-31T08:00+01:00"),
        (["charge", "--run-at", "2030-01-31T08:00"], "time zone"),
        (["charge", "--tasks", "{shop}", "--args", '{"order": 7}'], "order_id"),
        (["refund", "--tasks", "{shop}"], "registered: charge"),
    ],
)
def test_what_cannot_be_enqueued_is_one_line_that_names_the_fix(
    command: Run, shop: str, arguments: list[str], told: str
) -> None:
    given = [argument.replace("{shop}", shop) for argument in arguments]
    err = command("enqueue", *given, code=1 if "refund" in given else 2).err

    assert told in err
    assert err.count("\n") == 1


def test_a_named_registry_with_mapped_classes_of_its_own_gets_the_job_there(
    command: Run, session: Session, engine: Engine
) -> None:
    metadata.drop_all(engine)
    own_models.Base.metadata.create_all(engine)

    command("enqueue", "note", "--tasks", "tests.own_models:tasks", "--args", '{"name": "a"}')

    assert session.scalars(select(own_models.Work)).one().queue == "own"
