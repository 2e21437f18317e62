"""A service that claims by itself, in its own session: claim, change, dedup row and ack are one commit.

Run it with DATABASE_URL set: ``python examples/claim_service.py``. It ends when the queue is empty; a real service
would wait and look again.
"""

from __future__ import annotations

import logging
import os

from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import sa_jobqueue
from sa_jobqueue import ClaimedJob, JobSession

QUEUE = "readings"

logger = logging.getLogger("claim_service")


class Base(DeclarativeBase):
    """The service's own tables."""


class Reading(Base):
    """The value that a meter has sent."""

    __tablename__ = "readings"

    id: Mapped[int] = mapped_column(primary_key=True)
    meter: Mapped[str]
    value: Mapped[float]


def receive(session: Session, meter: str, number: int, value: float) -> None:
    """Enqueue what a meter sent; meters repeat themselves, so the number of the message is part of the key."""
    JobSession(session).enqueue(
        "store", {"meter": meter, "value": value}, queue=QUEUE, dedup_key=f"{meter}:{number}", max_attempts=2
    )


def serve_one(sessions: sessionmaker[Session]) -> bool:
    """Take one job and settle it; False if there was none."""
    with sessions.begin() as session:
        jobs = JobSession(session)
        job = jobs.claim(QUEUE)
        if job is None:
            return False
        try:
            with session.begin_nested():
                first = store(session, jobs, job)
        except ValueError as error:
            answer = jobs.fail(job, error, retry_in=0)
            logger.info("job %d failed, dead: %s", job.id, answer.dead)
        else:
            jobs.ack(job)
            logger.info("job %d %s", job.id, "stored" if first else "was a duplicate")
        return True


def store(session: Session, jobs: JobSession, job: ClaimedJob) -> bool:
    """Make the change, unless it was made before; a savepoint around it lets a failure be recorded in this commit."""
    if not jobs.once(job):
        return False
    if job.args["value"] < 0:
        msg = f"meter {job.args['meter']} counts backwards"
        raise ValueError(msg)
    session.add(Reading(meter=job.args["meter"], value=job.args["value"]))
    return True


def main() -> None:
    """Receive a few messages, one of them twice and one of them bad; then serve until nothing is left."""
    logging.basicConfig(level="INFO", format="%(message)s")
    engine = create_engine(os.environ["DATABASE_URL"])
    Base.metadata.create_all(engine)
    sa_jobqueue.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    with sessions.begin() as session:
        for meter, number, value in [("a", 1, 3.5), ("b", 1, 7.0), ("a", 1, 3.5), ("c", 1, -1.0)]:
            receive(session, meter, number, value)
    while serve_one(sessions):
        pass
    with sessions() as session:
        logger.info("%d readings", session.scalar(select(func.count()).select_from(Reading)))
    engine.dispose()


if __name__ == "__main__":
    main()
