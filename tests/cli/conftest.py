"""The command line as a user calls it, in this process: arguments in, exit code and texts out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from sa_jobqueue import JobSession
from sa_jobqueue.cli import main

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


@dataclass(frozen=True)
class Ran:
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run(Protocol):
    def __call__(self, *arguments: str, code: int = 0) -> Ran: ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command and check its exit code; no database is known but the one that the test names."""
    for name in ("SA_JOBQUEUE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str, code: int = 0) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, f"{out}{err}"
        return Ran(out, err)

    return call


@pytest.fixture
def command(run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, on the test's own database."""
    monkeypatch.setenv("SA_JOBQUEUE_URL", database_url)
    return run


@pytest.fixture
def dead_job(session: Session) -> int:
    """The id of a job that died of its first failure; its arguments and its error hold S3CRET."""
    jobs = JobSession(session)
    jobs.enqueue("charge", {"password": "S3CRET"}, queue="billing", max_attempts=1)
    job = jobs.claim("billing", worker="w-1")
    assert job is not None
    jobs.fail(job, ValueError("S3CRET was refused"))
    session.commit()
    return job.id
