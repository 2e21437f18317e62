"""The session stays the caller's: nothing of his is flushed, committed, rolled back, closed or expired by the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, Engine, ForeignKey, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, scoped_session, sessionmaker
from sqlalchemy.schema import CreateSchema

from sa_jobqueue import Job, JobSession, Models, NewJob, Retention, UnsupportedDatabase
from sa_jobqueue.models import DeadLetterMixin, DedupKeyMixin, JobLogMixin, JobMixin, RollupMixin
from tests.behaviour.business import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

OPERATIONS: dict[str, Callable[[Client, Any], object]] = {
    "enqueue": lambda queue, _: queue.enqueue("t"),
    "enqueue_many": lambda queue, _: queue.enqueue_many([NewJob("t"), NewJob("t", unique_key="u")]),
    "claim": lambda queue, _: queue.claim(),
    "claim_many": lambda queue, _: queue.claim_many(limit=2),
    "heartbeat": lambda queue, job: queue.heartbeat(job),
    "once": lambda queue, job: queue.once(job),
    "ack": lambda queue, job: queue.ack(job),
    "suppress": lambda queue, job: (queue.once(job), queue.suppress(job)),
    "fail": lambda queue, job: queue.fail(job, "x"),
    "release": lambda queue, job: queue.release(job),
    "snooze": lambda queue, job: queue.snooze(job, 1),
    "reject": lambda queue, job: queue.reject(job, "x"),
    "sweep": lambda queue, _: queue.sweep(),
    "redrive": lambda queue, _: queue.redrive(),
    "prune": lambda queue, _: queue.prune(Retention(dedup_keys=60)),
    "cancel": lambda queue, job: queue.cancel(job.id),
    "stats": lambda queue, _: queue.stats(),
}
MEDDLING = ("before_flush", "before_commit", "after_rollback", "after_soft_rollback", "after_transaction_end")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_neither_flushes_nor_ends_anything_of_the_callers(
    operation: str, queue: Client, observer: Observer
) -> None:
    queue.enqueue_many([NewJob("t")] * 2)
    job = queue.claim()
    queue.commit()
    half_built = Effect()
    queue.add(half_built)
    meddled: list[str] = []
    for name in MEDDLING:
        queue.run(lambda session, name=name: event.listen(session, name, lambda *_: meddled.append(name)))

    OPERATIONS[operation](queue, job)

    assert meddled == []
    assert queue.run(lambda session: (half_built in session.new, session.is_active)) == (True, True)
    half_built.name = "complete"
    queue.commit()
    assert observer.effects() == ["complete"]


def test_operations_join_the_transaction_that_the_caller_began(queue: Client, observer: Observer) -> None:
    savepoint = queue.begin_nested()
    queue.enqueue("t")
    savepoint.rollback()
    queue.enqueue("t")
    queue.rollback()
    assert observer.count("queued") == 0


def test_a_claim_shows_what_is_stored_now_not_what_the_session_read_before(queue: Client, observer: Observer) -> None:
    job_id = queue.enqueue("t", {"n": 1}).id
    queue.commit()
    stale, pending = queue.run(lambda session: session.get(Job, job_id)), Effect(name="pending")
    queue.add(pending)
    observer.all("""UPDATE jobqueue_job SET attempt = 2, args = '{"n": 7}'""")

    job = queue.claim()

    assert (job.attempt, job.args) == (3, {"n": 7})
    assert stale is not None
    queue.commit()
    assert observer.effects() == ["pending"]


def test_a_scoped_session_is_wrapped_as_it_is(engine: Engine, observer: Observer) -> None:
    sessions = scoped_session(sessionmaker(engine))
    JobSession(sessions).enqueue("t")
    sessions.commit()
    sessions.remove()
    assert observer.count("queued") == 1


def test_another_database_is_refused_with_its_name() -> None:
    with Session(create_engine("sqlite://")) as session, pytest.raises(UnsupportedDatabase, match="sqlite"):
        JobSession(session).claim()


def test_a_teams_own_models_with_an_eager_relationship_are_claimed_and_locked_alone(
    clients: Callable[..., Client], other: Client, engine: Engine
) -> None:
    models = _models_of_a_team()
    with engine.begin() as connection:
        connection.execute(CreateSchema("team"))
        models.job.metadata.create_all(connection)
    queue = clients(models=models)
    job_id = queue.enqueue("t", dedup_key="k").id
    queue.commit()
    other.execute("INSERT INTO team.tenant (id) VALUES (1)")
    other.execute("UPDATE work SET tenant_id = 1")
    other.commit()

    job = queue.claim()
    other.execute("SET LOCAL lock_timeout = '5s'")
    other.execute("UPDATE team.tenant SET name = 'not locked'")
    other.commit()
    assert not queue.ack(job).duplicate
    queue.commit()
    assert job.id == job_id


def _models_of_a_team() -> Models:
    class Base(DeclarativeBase):
        pass

    class Tenant(Base):
        __tablename__ = "tenant"
        __table_args__ = {"schema": "team"}  # noqa: RUF012 - SQLAlchemy's spelling
        id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
        name: Mapped[str | None]

    class Work(JobMixin, Base):
        __tablename__ = "work"
        tenant_id: Mapped[int | None] = mapped_column(ForeignKey(Tenant.id))
        tenant: Mapped[Tenant | None] = relationship(lazy="joined")

    made = {"job": Work}
    for name, mixin in {"dedup_key": DedupKeyMixin, "dead_letter": DeadLetterMixin, "job_log": JobLogMixin}.items():
        made[name] = type(name.title(), (mixin, Base), {"__tablename__": f"team_{name}"})
    made["rollup"] = type("Counts", (RollupMixin, Base), {"__tablename__": "team_rollup"})
    return Models(**made)
