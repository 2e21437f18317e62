"""A connection on which nothing comes any more, and that nobody closes: the worker has its own clock for that."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue import Backoff
from sa_jobqueue.observe import HeartbeatFailed, Outage, RunEnded, RunStarted
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
def start(crew: Crew, through: sessionmaker[Session]) -> Callable[..., None]:
    """Start a worker behind the proxy, with short bounds."""

    def start(**options: Any) -> None:
        crew.start(**({"sessionmaker": through, "control_timeout": 1, "concurrency": 1, "grace": 0} | options))

    return start


def test_a_loop_whose_connections_go_silent_takes_new_ones_and_says_so_once(
    tasks: TaskRegistry,
    start: Callable[..., None],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    proxy: Proxy,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=2)
    def mark(session: Session) -> None:
        session.add(Effect(name="done"))

    enqueue("mark")
    start()
    events.wait_for(RunEnded)
    proxy.freeze()
    events.wait_for(Outage)
    enqueue("mark")
    events.wait_for(RunEnded, count=3)
    assert events.outcomes() == ["done", "snoozed", "done"]  # the handler got a silent connection of the pool first
    assert observer.effects() == ["done", "done"]
    assert len(events.of(Outage)) == 1


def test_a_worker_that_gets_no_answer_on_new_connections_either_stays_and_recovers(
    tasks: TaskRegistry,
    start: Callable[..., None],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    proxy: Proxy,
) -> None:
    @tasks.task(queue=QUEUE)
    def mark(session: Session) -> None:
        session.add(Effect(name="done"))

    proxy.freeze_all()
    enqueue("mark")
    start()
    events.wait_for(Outage)
    proxy.thaw_new()
    events.wait_for(RunEnded)
    assert observer.effects() == ["done"]
    assert len(events.of(Outage)) == 1


def test_a_keeper_whose_connection_goes_silent_takes_a_new_one_before_the_lease_is_over(
    tasks: TaskRegistry,
    start: Callable[..., None],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    proxy: Proxy,
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE, visibility_timeout=6)
    def hold(_session: Session) -> None:
        go_on.wait(60)

    job = enqueue("hold")
    start()
    wait_until(lambda: _beaten(observer), what="a first heartbeat")
    first = observer.job(job.id).visible_at
    proxy.freeze()
    events.wait_for(HeartbeatFailed)
    wait_until(lambda: observer.job(job.id).visible_at > first, what="a heartbeat on a new connection")
    go_on.set()
    events.wait_for(RunEnded)
    assert events.outcomes() == ["done"]
    assert (len(events.of(RunStarted)), len(events.of(HeartbeatFailed))) == (1, 1)


def _beaten(observer: Observer) -> bool:
    return observer.scalar("SELECT count(*) FROM jobqueue_job WHERE visible_at > claimed_at + interval '6.5 s'") == 1


@pytest.fixture
def silent_once(tasks: TaskRegistry, observer: Observer, proxy: Proxy) -> None:
    """A handler whose connection goes silent between two statements of its first run."""
    silenced: list[int] = []

    def write(session: Session) -> None:
        session.add(Effect(name="first"))
        session.flush()
        if not silenced:
            silenced.append(port_of(session, observer))
            proxy.freeze(*silenced)
        session.add(Effect(name="second"))

    tasks.task(queue=QUEUE, visibility_timeout=2, name="unlimited")(write)
    tasks.task(queue=QUEUE, time_limit=1, backoff=Backoff(base=0.05, jitter=0), name="limited")(write)


@pytest.mark.usefixtures("silent_once")
def test_a_handler_whose_connection_goes_silent_is_freed_when_the_server_has_ended_its_session(
    start: Callable[..., None], enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    enqueue("unlimited")
    start(idle_timeout=1)
    events.wait_for(RunEnded, count=2)
    assert events.outcomes() == ["snoozed", "done"]
    assert events.attempts() == [1, 1]
    assert observer.effects() == ["first", "second"]


@pytest.mark.usefixtures("silent_once")
def test_a_handler_whose_connection_goes_silent_gives_slot_and_connection_back_at_its_time_limit(
    start: Callable[..., None],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    through: sessionmaker[Session],
) -> None:
    pool = through.kw["bind"].pool
    enqueue("limited")
    start()
    events.wait_for(RunEnded, count=2)
    assert events.outcomes() == ["retried", "done"]
    assert observer.effects() == ["first", "second"]
    wait_until(lambda: pool.checkedout() == 0, what="the stuck handler's connection to come back")
