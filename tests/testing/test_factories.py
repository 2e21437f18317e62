"""The factories make rows that the tables accept and that the queue treats as what they say they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import DeclarativeBase, Session

from sa_jobqueue import Job, JobSession, Models
from sa_jobqueue.models import DeadLetterMixin, DedupKeyMixin, JobLogMixin, JobMixin
from sa_jobqueue.states import DeathReason, Outcome
from sa_jobqueue.testing import JobFactory, factories_for

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.mark.parametrize(
    ("traits", "status", "claims"),
    [
        ({}, "queued", 1),
        ({"queued": True}, "queued", 1),
        ({"scheduled": True}, "scheduled", 0),
        ({"claimed": True}, "claimed", 0),
        ({"expired": True}, "claimed", 1),
    ],
)
def test_a_job_is_in_the_state_that_its_trait_names(
    traits: dict[str, Any], status: str, claims: int, session: Session
) -> None:
    job = factories_for(session).job(**traits)

    assert (job.status, job.id > 0) == (status, True)
    assert len(JobSession(session).claim_many(limit=1)) == claims


@pytest.mark.parametrize("reason", DeathReason)
def test_a_dead_letter_of_any_reason_can_be_redriven(reason: DeathReason, session: Session) -> None:
    dead = factories_for(session).dead_letter(reason=reason)

    redriven = JobSession(session).redrive(queue="default")

    assert redriven.redriven == (dead.job_id,)


def test_a_redriven_dead_letter_is_not_redriven_again(session: Session) -> None:
    factories_for(session).dead_letter(redriven=True)

    assert JobSession(session).redrive(queue="default").redriven == ()


def test_a_dedup_key_makes_a_duplicate_of_the_next_job_with_it(session: Session) -> None:
    factories = factories_for(session)
    effect = factories.dedup_key(scope="book")
    factories.job(task="book", dedup_key=effect.key)

    assert JobSession(session).claim().duplicate


@pytest.mark.parametrize("outcome", Outcome)
def test_a_log_row_can_have_any_outcome(outcome: Outcome, session: Session) -> None:
    assert factories_for(session).job_log(outcome=outcome).id > 0


def test_a_batch_needs_no_unique_values_from_the_test(session: Session) -> None:
    factories = factories_for(session)
    for factory in (factories.job, factories.dedup_key, factories.dead_letter, factories.job_log):
        assert len(factory.create_batch(3)) == 3


def test_factories_flush_but_do_not_commit(engine: Engine) -> None:
    with Session(engine) as session, engine.connect() as other:
        factories_for(session).job()

        assert other.scalar(select(func.count()).select_from(Job)) == 0


def test_binding_to_a_session_leaves_the_public_factories_unbound(session: Session) -> None:
    factories_for(session).job()

    with pytest.raises(RuntimeError, match="No session"):
        JobFactory()


def test_a_job_is_built_without_any_session() -> None:
    job = JobFactory.build(expired=True)

    assert job.enqueued_at < job.claimed_at < job.visible_at


def test_factories_make_rows_of_a_teams_own_classes(engine: Engine, session: Session) -> None:
    class Base(DeclarativeBase):
        pass

    def mapped(name: str, mixin: type) -> type:
        return type(name, (mixin, Base), {"__tablename__": f"own_{name}"})

    models = Models(
        mapped("job", JobMixin),
        mapped("dedup_key", DedupKeyMixin),
        mapped("dead_letter", DeadLetterMixin),
        mapped("job_log", JobLogMixin),
    )
    Base.metadata.create_all(engine)

    assert type(factories_for(session, models=models).job()) is models.job
