"""Effect, dedup row and acknowledgement are one commit."""

from __future__ import annotations

from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue.observe import RunEnded
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

_FAIL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the disk is full'; END $$;
CREATE {kind} TRIGGER fail AFTER INSERT ON {table} {when} FOR EACH ROW EXECUTE FUNCTION fail()
"""


def test_the_same_key_twice_one_after_the_other_has_one_effect_and_one_run(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def charge(session: Session) -> None:
        session.add(Effect(name="charged"))

    enqueue("charge", dedup_key="order:7")
    enqueue("charge", dedup_key="order:7")
    crew.drain(concurrency=1)

    assert observer.effects() == ["charged"]
    assert observer.dedup_keys() == [("charge", "order:7")]
    assert events.outcomes() == ["done", "duplicate"]


def test_the_same_key_twice_at_the_same_time_has_one_effect(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    both_have_their_effect = Barrier(2)

    @tasks.task(queue=QUEUE)
    def charge(session: Session) -> None:
        session.add(Effect(name="charged"))
        session.flush()
        both_have_their_effect.wait(20)

    enqueue("charge", dedup_key="order:7")
    enqueue("charge", dedup_key="order:7")
    crew.drain(concurrency=2)

    assert observer.effects() == ["charged"]
    assert sorted(events.outcomes()) == ["done", "duplicate"]


@pytest.mark.parametrize(
    ("table", "kind", "when"),
    [
        ("jobqueue_dedup_key", "", ""),
        ("jobqueue_dedup_key", "CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED"),
        ("effect", "CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED"),
    ],
    ids=["at the dedup row", "at the commit, for the dedup row", "at the commit, for the effect"],
)
def test_when_the_transaction_fails_between_effect_and_dedup_row_neither_is_visible_and_the_job_runs_again(
    table: str,
    kind: str,
    when: str,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE)
    def charge(session: Session) -> None:
        session.add(Effect(name="charged"))

    observer.all(_FAIL.format(table=table, kind=kind, when=when))
    job = enqueue("charge", dedup_key="order:7")
    crew.start()
    events.wait_for(RunEnded)
    assert (observer.effects(), observer.dedup_keys(), observer.state(job.id)) == ([], [], "scheduled")

    observer.all(f"DROP TRIGGER fail ON {table}")
    observer.make_due(job.id)
    crew.drain()
    assert (observer.effects(), observer.dedup_keys(), observer.state(job.id)) == (
        ["charged"],
        [("charge", "order:7")],
        None,
    )
