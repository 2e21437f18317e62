"""An application that has put the mixins on its own ``Base``, and the registry that knows it."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Session

from sa_jobqueue import Models, TaskRegistry
from sa_jobqueue.models import DeadLetterMixin, DedupKeyMixin, JobLogMixin, JobMixin, RollupMixin
from tests.behaviour.business import Effect


class Base(DeclarativeBase):
    pass


class Work(JobMixin, Base):
    __tablename__ = "work"


class WorkDone(DedupKeyMixin, Base):
    __tablename__ = "work_done"


class WorkLost(DeadLetterMixin, Base):
    __tablename__ = "work_lost"


class WorkLog(JobLogMixin, Base):
    __tablename__ = "work_log"


class WorkCount(RollupMixin, Base):
    __tablename__ = "work_count"


MODELS = Models(job=Work, dedup_key=WorkDone, dead_letter=WorkLost, job_log=WorkLog, rollup=WorkCount)
tasks = TaskRegistry(models=MODELS)


@tasks.task(queue="own")
def note(session: Session, name: str) -> None:
    session.add(Effect(name=name))
