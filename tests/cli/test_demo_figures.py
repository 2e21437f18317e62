from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from sa_jobqueue import Job, JobSession
from sa_jobqueue.cli.demo.business import QUEUE, Base, Delivery, RepositoryEvent, book_event, receive
from sa_jobqueue.cli.demo.command import judge
from sa_jobqueue.cli.demo.figures import Figures, count
from sa_jobqueue.cli.demo.webhooks import Webhook

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def business(engine: Engine, session: Session) -> Session:
    """Three deliveries, d0 to d2, received once each; nothing has run."""
    Base.metadata.create_all(engine)
    for number in range(3):
        receive(session, Webhook(f"d{number}", "push", None, {"repository": {"full_name": "ann/notes"}}))
        session.commit()
    return session


def work(session: Session) -> None:
    """Run every job as a worker does: effect and acknowledgement in one commit."""
    jobs = JobSession(session, job_log=True)
    while job := jobs.claim(QUEUE, visibility_timeout=60):
        session.commit()
        book_event.run(session, job)
        jobs.ack(job)
        session.commit()


def figures(session: Session) -> Figures:
    session.commit()
    return count(session, killed=1, seconds=1.0)


def exit_code(counted: Figures) -> int:
    with pytest.raises(typer.Exit) as ended:
        judge(counted, as_json=True)
    return ended.value.exit_code


def test_deliveries_with_one_effect_each_are_neither_lost_nor_duplicate(business: Session) -> None:
    work(business)
    counted = figures(business)

    assert (counted.enqueued, counted.deliveries, counted.effects) == (3, 3, 3)
    assert (counted.lost, counted.duplicate_effects, counted.unfinished) == (0, 0, 0)
    assert business.scalars(select(RepositoryEvent.repository)).all() == ["ann/notes"] * 3


def test_an_effect_that_is_deleted_is_a_lost_delivery_and_exit_code_1(business: Session) -> None:
    work(business)
    business.execute(delete(RepositoryEvent).where(RepositoryEvent.delivery_id == "d1"))
    counted = figures(business)

    assert counted.lost == 1
    assert exit_code(counted) == 1


def test_a_job_that_is_deleted_before_it_ran_is_a_lost_delivery_and_exit_code_1(business: Session) -> None:
    business.execute(delete(Job).where(Job.dedup_key == "d1"))
    work(business)
    counted = figures(business)

    assert (counted.lost, counted.effects) == (1, 2)
    assert exit_code(counted) == 1


def test_a_second_effect_of_one_delivery_is_a_duplicate_effect_and_exit_code_1(business: Session) -> None:
    work(business)
    business.add(RepositoryEvent(delivery_id="d1", what="push"))
    counted = figures(business)

    assert (counted.duplicate_effects, counted.effects) == (1, 4)
    assert exit_code(counted) == 1


def test_a_dead_letter_is_not_lost(business: Session) -> None:
    job_id = business.scalars(select(Job.id).where(Job.dedup_key == "d1")).one()
    JobSession(business).cancel(job_id)
    business.commit()
    work(business)
    counted = figures(business)

    assert (counted.lost, counted.dead_letters, counted.effects) == (0, 1, 2)


def test_a_job_that_is_still_live_is_unfinished_and_exit_code_1(business: Session) -> None:
    counted = figures(business)

    assert (counted.lost, counted.unfinished) == (0, 3)
    assert exit_code(counted) == 1


def test_a_run_in_which_nothing_was_killed_proves_nothing_and_fails(business: Session) -> None:
    work(business)
    business.commit()

    assert exit_code(count(business, killed=0, seconds=1.0)) == 1


def test_a_delivery_that_is_sent_twice_is_stored_once_and_enqueued_twice(business: Session) -> None:
    receive(business, Webhook("d1", "push", None, {}))
    business.commit()

    assert business.get_one(Delivery, "d1").received == 2
    assert business.scalars(select(Job.dedup_key).order_by(Job.id)).all() == ["d0", "d1", "d2", "d1"]
    assert figures(business).enqueued == 4
