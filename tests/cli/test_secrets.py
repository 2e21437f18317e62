from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import JobSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run

LISTS = [["jobs"], ["jobs", "show", "{live}"], ["dead"], ["dead", "show", "{dead}"]]


@pytest.fixture
def live_job(session: Session) -> int:
    """A live job whose arguments, headers and first error hold S3CRET."""
    jobs = JobSession(session)
    jobs.enqueue("charge", {"password": "S3CRET"}, headers={"token": "S3CRET"})
    job = jobs.claim()
    assert job is not None
    jobs.fail(job, ValueError("S3CRET was refused"))
    session.commit()
    return job.id


@pytest.mark.parametrize("shape", [[], ["--json"]], ids=["table", "json"])
@pytest.mark.parametrize("listing", LISTS, ids=" ".join)
def test_arguments_are_printed_only_when_asked_for(
    command: Run, live_job: int, dead_job: int, listing: list[str], shape: list[str]
) -> None:
    arguments = [part.format(live=live_job, dead=dead_job) for part in listing] + shape

    assert "S3CRET" not in command(*arguments).out
    assert "S3CRET" in command(*arguments, "--show-args").out


def test_enqueue_stats_and_redrive_do_not_repeat_arguments(command: Run, dead_job: int) -> None:
    ran = [
        command("enqueue", "charge", "--args", '{"password": "S3CRET"}'),
        command("enqueue", "charge", "--args", '{"password": "S3CRET", "a": NaN}', code=2),
        command("stats"),
        command("dead", "redrive", str(dead_job)),
    ]

    assert "S3CRET" not in "".join(each.out + each.err for each in ran)
