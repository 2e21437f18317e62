"""The database of one test, and the processes that live and die on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select, text
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import DeadLetter, DedupKey, Job, JobLog, JobSession, Models
from sa_jobqueue.testing.crash.queue import Queue
from tests.crash.app import Effect

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sqlalchemy import Engine

    from sa_jobqueue.testing.crash.points import CrashPoint
    from sa_jobqueue.testing.crash.processes import WorkerProcess, WorkerProcesses


_IDLE = text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:pids) AND state LIKE 'idle in transaction%'")


@dataclass(frozen=True, slots=True)
class Fate:
    """What can be known of one job: where its row is, and everything that it left."""

    status: str
    attempt: int | None
    effects: int
    dedup_rows: int
    outcomes: tuple[tuple[str, int], ...]
    """(outcome, attempt) of each run that the job log has, in order."""


@dataclass(frozen=True, slots=True)
class Ground:
    engine: Engine
    processes: WorkerProcesses
    events_file: Path

    def start(
        self, run: str, queues: Iterable[str], aim: CrashPoint | None = None, *, fatal: bool = False, **more: str
    ) -> WorkerProcess:
        url = self.engine.url.render_as_string(hide_password=False)
        named = {"RUN": run, "QUEUES": ",".join(queues), "DATABASE_URL": url, "EVENTS": str(self.events_file)} | more
        return self.processes.start(aim, fatal=fatal, **named)

    def enqueue(self, queue: str, task: str, *, name: str = "", max_attempts: int = 5, keyed: bool = False) -> int:
        """One job; its effect bears ``name``, or the name of its queue."""
        effect = name or queue
        key = f"effect:{effect}" if keyed else None
        with Session(self.engine) as session, session.begin():
            jobs = JobSession(session)
            return jobs.enqueue(task, {"name": effect}, queue=queue, max_attempts=max_attempts, dedup_key=key).id

    def impatient_url(self, milliseconds: int) -> str:
        """The database, whose server ends a session that idles in a transaction for so long."""
        option = f"-c idle_in_transaction_session_timeout={milliseconds}"
        return self.engine.url.update_query_dict({"options": option}).render_as_string(hide_password=False)

    def idle_in_transaction(self, backends: Iterable[int]) -> int:
        """How many of these server processes are in a transaction in which nothing happens."""
        with Session(self.engine) as session:
            return session.scalar(_IDLE, {"pids": list(backends)}) or 0

    def effects(self, name: str) -> list[int]:
        """The processes that wrote an effect of that name."""
        with Session(self.engine) as session:
            return list(session.scalars(select(Effect.process).where(Effect.name == name)))

    @property
    def queue(self) -> Queue:
        return Queue(sessionmaker(self.engine), Models())

    def fates(self, ids: Iterable[int]) -> list[Fate]:
        with Session(self.engine) as session:
            return [_fate(session, job_id) for job_id in ids]

    def events(self) -> Counter[tuple[int, str, int]]:
        """How often each (process, event, job) was told."""
        if not self.events_file.exists():
            return Counter()
        words = (line.split() for line in self.events_file.read_text().splitlines())
        return Counter((int(process), event, int(job)) for process, event, job in words)


def _fate(session: Session, job_id: int) -> Fate:
    live = session.get(Job, job_id)
    dead = session.scalars(select(DeadLetter).where(DeadLetter.job_id == job_id)).all()
    log = session.scalars(select(JobLog).where(JobLog.job_id == job_id).order_by(JobLog.id)).all()
    queue = next(row.queue for row in [live, *dead, *log] if row is not None)
    return Fate(
        status=live.status if live else "+".join(row.reason for row in dead) or "gone",
        attempt=live.attempt if live else max((row.attempt for row in dead), default=None),
        effects=len(session.scalars(select(Effect.id).where(Effect.name == queue)).all()),
        dedup_rows=len(session.scalars(select(DedupKey.key).where(DedupKey.job_id == job_id)).all()),
        outcomes=tuple((row.outcome, row.attempt) for row in log),
    )
