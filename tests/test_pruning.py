"""The whole prune: batch after batch, each committed, whatever happens to one of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.orm import sessionmaker as session_factory

from sa_jobqueue import InvalidArgument, JobSession, Models, PruneUnfinished, Retention
from sa_jobqueue.models import DeadLetterMixin, DedupKeyMixin, JobLogMixin, JobMixin, RollupMixin
from sa_jobqueue.pruning import prune

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

DAY = timedelta(days=1)
BOTH = Retention(dedup_keys=DAY, job_log=DAY)
KEYS = """
INSERT INTO jobqueue_dedup_key (scope, key, created_at)
SELECT 't', 'key ' || n, now() - interval '2 days' FROM generate_series(1, :many) AS n
"""
LOG = """
INSERT INTO jobqueue_job_log (job_id, queue, task, attempt, outcome, enqueued_at, finished_at)
SELECT n, 'q', 't', 1, 'done', now(), now() - interval '2 days' FROM generate_series(1, :many) AS n
"""
REFUSE_MANY = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM deleted) > {most} THEN RAISE 'too much at once' USING ERRCODE = '{sqlstate}'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refuse AFTER DELETE ON jobqueue_job_log REFERENCING OLD TABLE AS deleted
FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def hurried(database_url: str) -> Iterator[session_factory[Session]]:
    """Sessions with a statement timeout of two seconds."""
    engine = create_engine(database_url, connect_args={"options": "-c statement_timeout=2s"})
    yield session_factory(engine)
    engine.dispose()


def _run(engine: Engine, sql: str, **values: object) -> None:
    with engine.begin() as connection:
        connection.execute(text(sql), values)


def _count(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        return connection.scalar(text(f"SELECT count(*) FROM {table}"))  # noqa: S608 - ours


def test_two_prunes_beside_busy_workers_delete_what_is_old_and_nothing_else(
    engine: Engine, sessionmaker: session_factory[Session], hurried: session_factory[Session]
) -> None:
    for many in (KEYS, LOG):
        _run(engine, many, many=20_000)
    enough, done = threading.Event(), []

    def work() -> None:
        while not enough.is_set() or len(done) < 10:
            with sessionmaker.begin() as session:
                jobs = JobSession(session, job_log=True)
                jobs.enqueue("t", dedup_key=f"new {len(done)}")
                done.append(jobs.ack(jobs.claim()))

    with ThreadPoolExecutor(3) as pool:
        working = pool.submit(work)
        pruning = [pool.submit(prune, hurried, BOTH, limit=500) for _ in range(2)]
        pruned = [each.result(timeout=60) for each in pruning]
        enough.set()
        working.result(timeout=10)

    assert pruned[0].dedup_keys + pruned[1].dedup_keys + prune(hurried, BOTH).dedup_keys == 20_000
    assert _count(engine, "jobqueue_dedup_key") == _count(engine, "jobqueue_job_log") == len(done)


@pytest.mark.parametrize("sqlstate", ["57014", "40P01", "40001"], ids=["timeout", "deadlock", "serialization"])
def test_a_batch_that_fails_is_tried_again_in_smaller_pieces(
    sqlstate: str, engine: Engine, sessionmaker: session_factory[Session]
) -> None:
    _run(engine, LOG, many=300)
    _run(engine, REFUSE_MANY.format(most=10, sqlstate=sqlstate))
    assert prune(sessionmaker, BOTH, limit=100).job_log == 300
    assert _count(engine, "jobqueue_job_log") == 0


def test_a_table_that_fails_each_time_is_left_for_the_next_prune_and_the_others_are_not(
    engine: Engine, sessionmaker: session_factory[Session]
) -> None:
    for many in (KEYS, LOG):
        _run(engine, many, many=30)
    _run(engine, REFUSE_MANY.format(most=0, sqlstate="57014"))
    with pytest.raises(PruneUnfinished, match="job_log: too much at once") as unfinished:
        prune(sessionmaker, BOTH, limit=10)
    assert (unfinished.value.counts["dedup_keys"], unfinished.value.counts["job_log"]) == (30, 0)
    assert set(unfinished.value.errors) == {"job_log"}

    _run(engine, "DROP FUNCTION refuse CASCADE")
    assert prune(sessionmaker, BOTH, limit=10).job_log == 30


def test_what_was_committed_before_a_failure_stays(engine: Engine, sessionmaker: session_factory[Session]) -> None:
    _run(engine, LOG, many=30)
    _run(
        engine, "UPDATE jobqueue_job_log SET outcome = 'dead', finished_at = now() - interval '36 h' WHERE job_id > 20"
    )
    guard = "IF OLD.outcome = 'dead' THEN RAISE 'not the dead'; END IF; RETURN OLD;"
    _run(engine, f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {guard} END $$")
    _run(engine, "CREATE TRIGGER refuse BEFORE DELETE ON jobqueue_job_log FOR EACH ROW EXECUTE FUNCTION refuse()")

    with pytest.raises(PruneUnfinished) as unfinished:
        prune(sessionmaker, BOTH, limit=10)
    assert unfinished.value.counts["job_log"] == 30 - _count(engine, "jobqueue_job_log") == 20


def test_the_tables_of_a_team_are_pruned_under_their_own_names(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Task(JobMixin, Base):
        __tablename__ = "Work 'n' play"

    class Effect(DedupKeyMixin, Base):
        __tablename__ = "Effect's 100%"

    class Grave(DeadLetterMixin, Base):
        __tablename__ = "work_grave"

    class Log(JobLogMixin, Base):
        __tablename__ = "work_log"

    class Counter(RollupMixin, Base):
        __tablename__ = "work_counter"

    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        jobs = JobSession(session, models=Models(Task, Effect, Grave, Log, Counter), job_log=True)
        jobs.enqueue("t", dedup_key="k")
        jobs.ack(jobs.claim())
        session.execute(Effect.__table__.update().values(created_at=text("now() - interval '2 days'")))
        session.execute(Log.__table__.update().values(finished_at=text("now() - interval '2 days'")))

    pruned = prune(session_factory(engine), BOTH, models=Models(Task, Effect, Grave, Log, Counter))
    assert (pruned.dedup_keys, pruned.job_log) == (1, 1)


def test_a_walk_over_many_pages_ends_and_reads_each_once(
    engine: Engine, sessionmaker: session_factory[Session]
) -> None:
    """Young keys and old ones take turns over hundreds of pages; one page is a piece."""
    _run(engine, KEYS, many=20_000)
    _run(engine, "UPDATE jobqueue_dedup_key SET created_at = now() WHERE key LIKE '%7'")
    pages = _pages(engine)
    sent = _count_statements(engine, lambda: prune(sessionmaker, Retention(dedup_keys=DAY), limit=50))
    assert _count(engine, "jobqueue_dedup_key") == 2_000
    assert pages <= sent <= pages + 18_000 / 50 + 1


def test_a_bad_limit_is_refused_before_a_connection_is_made() -> None:
    with pytest.raises(InvalidArgument, match="limit must be an int"):
        prune(session_factory(), BOTH, limit=0)


def _pages(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(text("SELECT pg_relation_size('jobqueue_dedup_key') / 8192"))


def _count_statements(engine: Engine, work: Callable[[], object]) -> int:
    sent: list[str] = []

    def record(_connection: object, _cursor: object, sql: str, *_: object) -> None:
        sent.append(sql)

    event.listen(engine, "before_cursor_execute", record)
    work()
    event.remove(engine, "before_cursor_execute", record)
    return sum("SKIP LOCKED" in sql for sql in sent)
