"""What goes past SQLAlchemy for speed does not do so where somebody reads its log of statements."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession

if TYPE_CHECKING:
    import pytest
    from sqlalchemy import Engine


def test_an_engine_whose_log_is_read_logs_the_statements_of_the_queue(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sqlalchemy.engine")
    logged = create_engine(engine.url)
    with Session(logged) as session:
        jobs = JobSession(session)
        jobs.enqueue("t")
        claimed = jobs.claim()
        assert claimed is not None
        jobs.ack(claimed)
        session.commit()
    logged.dispose()

    said = " ".join(record.getMessage() for record in caplog.records)
    assert all(
        part in said for part in ("INSERT INTO jobqueue_job ", "UPDATE jobqueue_job ", "DELETE FROM jobqueue_job ")
    )
