from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from sa_jobqueue import DeadLetter, Job, JobSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run


@pytest.fixture
def three(session: Session) -> list[int]:
    """A job that waits, one that is claimed by w-1, one that is scheduled."""
    jobs = JobSession(session)
    claimed = jobs.enqueue("charge", {"password": "S3CRET"}, queue="billing", priority=-1).id
    jobs.claim("billing", worker="w-1")
    waiting = jobs.enqueue("charge", {"password": "S3CRET"}, queue="billing").id
    later = jobs.enqueue("send", queue="mail", delay=3600, headers={"trace": "S3CRET"}).id
    session.commit()
    return [waiting, claimed, later]


def test_jobs_lists_live_jobs_by_id_with_their_state(command: Run, three: list[int]) -> None:
    listed = command("jobs", "--json").json

    assert [job["id"] for job in listed["jobs"]] == sorted(three)
    assert {job["id"]: job["status"] for job in listed["jobs"]} == dict(
        zip(three, ["queued", "claimed", "scheduled"], strict=True)
    )


@pytest.mark.parametrize(
    ("narrowed", "which"),
    [(["--queue", "mail"], 2), (["--task", "send"], 2), (["--status", "claimed"], 1), (["-s", "queued"], 0)],
)
def test_jobs_can_be_narrowed(command: Run, three: list[int], narrowed: list[str], which: int) -> None:
    listed = command("jobs", "list", *narrowed, "--json").json

    assert [job["id"] for job in listed["jobs"]] == [three[which]]


@pytest.mark.usefixtures("three")
def test_a_list_that_was_cut_says_so(command: Run) -> None:
    assert command("jobs", "--limit", "2", "--json").json["more"] is True
    assert "there are more: --limit" in command("jobs", "--limit", "2").out
    assert command("jobs", "--limit", "3", "--json").json["more"] is False


@pytest.mark.usefixtures("three")
def test_the_list_for_people_says_who_holds_a_job_and_for_how_long(command: Run) -> None:
    out = command("jobs").out

    assert "lease ends in" in out
    assert "w-1" in out
    assert "in 60 min" in out


def test_show_prints_one_job_with_its_error_history(command: Run, session: Session) -> None:
    jobs = JobSession(session)
    job_id = jobs.enqueue("charge").id
    claimed = jobs.claim(worker="w-1")
    assert claimed is not None
    jobs.fail(claimed, ValueError("no such card"))
    session.commit()

    shown = command("jobs", "show", str(job_id), "--json").json

    assert (shown["id"], shown["status"], shown["attempt"]) == (job_id, "scheduled", 1)
    assert [(error["attempt"], error["error"], error["worker"]) for error in shown["errors"]] == [
        (1, "ValueError", "w-1")
    ]


def test_show_of_a_job_that_is_not_live_says_where_it_may_be(command: Run) -> None:
    assert "sa-jobqueue dead show 77" in command("jobs", "show", "77", code=1).err


def test_cancel_makes_a_dead_letter_and_reports_what_was_gone(command: Run, session: Session, three: list[int]) -> None:
    done = command("jobs", "cancel", str(three[1]), "999", "--json", code=1).json

    assert done == {"cancelled": [three[1]], "not_live": [999]}
    assert session.scalars(select(DeadLetter.reason)).all() == ["cancelled"]


def test_cancel_with_drop_leaves_nothing(command: Run, session: Session, three: list[int]) -> None:
    command("jobs", "cancel", *map(str, three), "--drop")

    assert session.scalars(select(Job.id)).all() == []
    assert session.scalars(select(DeadLetter.id)).all() == []


def test_a_control_character_in_a_name_does_not_reach_the_terminal(command: Run, session: Session) -> None:
    JobSession(session).enqueue("evil\x1b[2J")
    session.commit()

    out = command("jobs").out

    assert "\x1b" not in out
    assert "evil\\x1b[2J" in out
