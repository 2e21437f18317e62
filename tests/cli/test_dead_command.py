from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from sa_jobqueue import Job, JobSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run


def test_dead_lists_the_letters_with_the_kind_of_their_last_error(command: Run, dead_job: int) -> None:
    (letter,) = command("dead", "--json").json["dead"]

    assert (letter["job_id"], letter["queue"], letter["reason"]) == (dead_job, "billing", "failed")
    assert letter["errors"][-1]["error"] == "ValueError"
    assert "ValueError" in command("dead").out


@pytest.mark.usefixtures("dead_job")
def test_dead_can_be_narrowed_by_queue_task_and_reason(command: Run) -> None:
    for narrowed in (["--queue", "billing"], ["--task", "charge"], ["--reason", "failed"]):
        assert len(command("dead", "list", *narrowed, "--json").json["dead"]) == 1
    for narrowed in (["--queue", "mail"], ["--task", "send"], ["--reason", "rejected"]):
        assert command("dead", "list", *narrowed, "--json").json["dead"] == []


def test_show_prints_one_letter(command: Run, dead_job: int) -> None:
    assert command("dead", "show", str(dead_job), "--json").json["job_id"] == dead_job
    assert "sa-jobqueue dead" in command("dead", "show", "777", code=1).err


def test_a_redriven_job_is_live_again_and_its_letter_listed_no_more(
    command: Run, session: Session, dead_job: int
) -> None:
    done = command("dead", "redrive", str(dead_job), "--json").json

    assert done == {"redriven": [dead_job], "skipped": [], "not_dead": []}
    assert session.scalars(select(Job.attempt)).all() == [0]
    assert command("dead", "--json").json["dead"] == []
    assert len(command("dead", "--redriven", "--json").json["dead"]) == 1


def test_redrive_of_all_takes_those_that_match(command: Run, dead_job: int) -> None:
    assert command("dead", "redrive", "--all", "--queue", "mail", "--json").json["redriven"] == []
    assert command("dead", "redrive", "--all", "--queue", "billing", "--json").json["redriven"] == [dead_job]


def test_redrive_fails_for_a_job_that_is_not_dead(command: Run, dead_job: int) -> None:
    done = command("dead", "redrive", str(dead_job), "777", "--json", code=1).json

    assert (done["redriven"], done["not_dead"]) == ([dead_job], [777])


@pytest.mark.usefixtures("dead_job")
def test_redrive_asks_for_ids_or_all_and_does_not_guess(command: Run, session: Session) -> None:
    assert "--all" in command("dead", "redrive", code=2).err
    assert "--all" in command("dead", "redrive", "1", "--all", code=2).err
    assert session.scalars(select(Job.id)).all() == []


def test_a_letter_whose_unique_key_is_taken_stays_and_the_exit_code_says_so(command: Run, session: Session) -> None:
    jobs = JobSession(session)
    first = jobs.enqueue("charge", unique_key="u").id
    jobs.cancel(first)
    jobs.enqueue("charge", unique_key="u")
    session.commit()

    assert command("dead", "redrive", str(first), "--json", code=1).json["skipped"] == [first]
