"""The connection breaks at the COMMIT: whether it took effect is found out, not guessed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue.observe import RunEnded, RunStarted
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.proxy import port_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.proxy import Proxy


@pytest.fixture
def lose_commit(tasks: TaskRegistry, observer: Observer, proxy: Proxy) -> Callable[..., None]:
    """Declare a handler whose first run loses its connection at the COMMIT: on the way there, or on the way back."""

    def declare(*, forward: bool) -> None:
        @tasks.task(queue=QUEUE)
        def write(session: Session) -> None:
            session.add(Effect(name="done"))
            session.flush()
            if not lost:
                lost.append(proxy.lose(port_of(session, observer), b"COMMIT", forward=forward))

    lost: list[object] = []
    return declare


def test_a_commit_whose_answer_is_lost_is_neither_run_again_nor_recorded_as_failed(
    lose_commit: Callable[..., None],
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    through: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    lose_commit(forward=True)
    job = enqueue("write")
    crew.drain(sessionmaker=through)
    assert (events.outcomes(), observer.effects()) == (["done"], ["done"])
    assert len(events.of(RunStarted)) == 1
    assert (observer.job(job.id), list(observer.dead(job.id))) == (None, [])


def test_a_commit_that_is_lost_on_its_way_is_run_again_and_spends_no_attempt(
    lose_commit: Callable[..., None],
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    through: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    lose_commit(forward=False)
    enqueue("write")
    crew.start(sessionmaker=through)
    events.wait_for(RunEnded, count=2)
    assert (events.outcomes(), observer.effects()) == (["snoozed", "done"], ["done"])
    assert events.attempts() == [1, 1]


@pytest.mark.parametrize("forward", [True, False], ids=["on its way back", "on its way there"])
@pytest.mark.parametrize(
    ("options", "message"), [({"group_commit": 10}, b"COMMIT"), ({}, b"; COMMIT")], ids=["a group", "with the ack"]
)
def test_jobs_whose_commit_is_lost_have_each_effect_once_and_spend_no_attempt(
    *,
    forward: bool,
    options: dict[str, int],
    message: bytes,
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    through: sessionmaker[Session],
    observer: Observer,
    events: Events,
    proxy: Proxy,
) -> None:
    lost: list[threading.Event] = []

    @tasks.task(queue=QUEUE, **options)
    def write(session: Session, name: str) -> None:
        session.add(Effect(name=name))
        if not lost and name == "c":
            lost.append(proxy.lose(port_of(session, observer), message, forward=forward))

    for name in "abc":
        enqueue("write", {"name": name})
    crew.start(sessionmaker=through, concurrency=1)
    wait_until(lambda: events.outcomes().count("done") == 3, timeout=30, what="three jobs to be done")
    assert (lost[0].is_set(), sorted(observer.effects())) == (True, ["a", "b", "c"])
    assert set(events.outcomes()) == ({"done"} if forward else {"done", "snoozed"})
    assert set(events.attempts()) == {1}
