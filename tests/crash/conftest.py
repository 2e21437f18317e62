"""Processes of one application, and a look at its database from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue.testing.crash.processes import WorkerProcesses
from tests.crash.app import Base
from tests.crash.ground import Ground

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine


@pytest.fixture(scope="session")
def processes() -> Iterator[WorkerProcesses]:
    with WorkerProcesses("tests.crash.app:run", timeout=60) as processes:
        yield processes


@pytest.fixture
def ground(engine: Engine, processes: WorkerProcesses, tmp_path: Path) -> Iterator[Ground]:
    Base.metadata.create_all(engine)
    yield Ground(engine, processes, tmp_path / "events")
    processes.let_go()
