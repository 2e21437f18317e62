"""The keeper: leases live as long as their jobs run, whatever the handlers do, and no longer."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy import select, text

from sa_jobqueue import Job, JobQueueError, JobSession, NewJob, current_job
from sa_jobqueue.observe import HeartbeatFailed, LeaseWasLost, RunEnded, RunStarted, SweepDone
from sa_jobqueue.worker.setup import requeue_jitter
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import no_thread_left_behind, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events

LEASE = 1.5
_END_KEEPER = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND query LIKE '%AS beat(%' AND pid <> pg_backend_pid()"
)


def watch_leases(observer: Observer, *jobs: EnqueuedJob, leases: float = 2.5) -> None:
    """Sample the expiry of these jobs until their claim is ``leases`` timeouts old; it must never be in the past."""
    sql = (
        "SELECT min(statement_timestamp() - claimed_at) > :age * interval '1 second', "
        "min(visible_at) > statement_timestamp(), count(*), max(attempt) FROM jobqueue_job WHERE id = ANY(:ids)"
    )

    def old() -> bool:
        is_old, alive, count, attempt = observer.all(sql, ids=[job.id for job in jobs], age=leases * LEASE)[0]
        assert alive
        assert (count, attempt) == (len(jobs), 1)
        return is_old

    wait_until(old, what="a job of several timeouts")


def test_a_handler_that_blocks_the_event_loop_does_not_stop_the_heartbeats_of_its_loop(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    async def polite(session: AsyncSession) -> None:
        await session.execute(text("SELECT pg_sleep(0.01)"))

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    async def blocking(_session: AsyncSession) -> None:
        go_on.wait(30)

    jobs = [enqueue("blocking"), enqueue("polite"), enqueue("polite")]
    crew.start(concurrency=3)
    wait_until(lambda: observer.count("claimed") == 3, timeout=20, what="three claims")
    watch_leases(observer, *jobs)
    go_on.set()
    events.wait_for(RunEnded, count=3)
    assert events.outcomes() == ["done"] * 3
    assert len(events.of(RunStarted)) == 3


def test_a_run_that_lost_its_lease_before_its_first_statement_gets_no_transaction_any_more(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on, over = Event(), Event()
    said: list[str] = []

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def begin_late(session: Session) -> None:
        assert go_on.wait(30)
        try:
            session.execute(text("SELECT 1"))
        except JobQueueError as error:
            said.append(str(error))
        over.set()

    job = enqueue("begin_late")
    crew.start(concurrency=1)
    events.wait_for(RunStarted)
    observer.steal(job.id)
    events.wait_for(LeaseWasLost)
    go_on.set()
    assert over.wait(20)
    assert said == [f"the run of job {job.id} was given up before this transaction began: lease lost"]


def test_a_worker_that_does_not_know_yet_how_long_its_jobs_take_claims_no_more_than_it_has_slots(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE)
    def hold(_session: Session) -> None:
        assert go_on.wait(30)

    for _ in range(6):
        enqueue("hold")
    crew.start(concurrency=2)
    events.wait_for(RunStarted, count=2)
    assert observer.count("claimed") == 2
    go_on.set()
    events.wait_for(RunEnded, count=6)


def test_a_handler_that_locks_its_own_jobs_row_delays_no_heartbeat_of_another(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    locked, go_on = Event(), Event()

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def lock(session: Session) -> None:
        session.execute(select(Job).where(Job.id == current_job().id).with_for_update())
        locked.set()
        go_on.wait(30)

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def hold(_session: Session) -> None:
        go_on.wait(30)

    enqueue("lock")
    others = [enqueue("hold"), enqueue("hold")]
    crew.start(concurrency=3)
    events.wait_for(RunStarted, count=3)
    assert locked.wait(20)
    watch_leases(observer, *others)
    assert observer.lock_waits() == []
    go_on.set()
    events.wait_for(RunEnded, count=3)
    assert events.outcomes() == ["done"] * 3


def test_a_job_that_an_operator_cancels_is_ended_at_the_next_heartbeat_even_in_the_middle_of_sql(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    sessionmaker: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def stuck(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        session.execute(text("SELECT pg_sleep(1000)"))

    job = enqueue("stuck")
    crew.start(concurrency=1)
    events.wait_for(RunStarted)
    with sessionmaker.begin() as session:
        assert JobSession(session).cancel(job.id)
    (lost,) = events.wait_for(LeaseWasLost)
    crew.drain()
    assert lost.job.id == job.id
    assert (observer.effects(), events.outcomes()) == ([], [])


def test_a_keeper_whose_connection_was_ended_says_so_once_and_the_lease_lives_on(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE, visibility_timeout=LEASE)
    def hold(_session: Session) -> None:
        go_on.wait(30)

    job = enqueue("hold")
    crew.start(concurrency=1)
    wait_until(lambda: observer.scalar(_END_KEEPER), what="a first heartbeat, and its connection to end")
    events.wait_for(HeartbeatFailed)
    watch_leases(observer, job)
    go_on.set()
    events.wait_for(RunEnded)
    assert events.outcomes() == ["done"]
    assert len(events.of(HeartbeatFailed)) == 1


def test_a_worker_leaves_no_thread_behind(tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob]) -> None:
    @tasks.task(queue=QUEUE)
    def function(_session: Session) -> None: ...

    @tasks.task(queue=QUEUE)
    async def coroutine(_session: AsyncSession) -> None: ...

    for _ in range(10):
        enqueue("function")
        enqueue("coroutine")
    with no_thread_left_behind():
        crew.drain()


def test_a_worker_spreads_the_jobs_of_workers_that_died_together_over_its_jitter(
    tasks: TaskRegistry,
    crew: Crew,
    sessionmaker: sessionmaker[Session],
    observer: Observer,
    events: Events,
) -> None:
    @tasks.task(queue=QUEUE, visibility_timeout=400)
    def lost(_session: Session) -> None: ...

    with sessionmaker.begin() as session:
        JobSession(session).enqueue_many([NewJob("lost", {}, QUEUE)] * 500)
        JobSession(session).claim_many(QUEUE, limit=500)
    observer.all("UPDATE jobqueue_job SET visible_at = clock_timestamp() - interval '50 seconds'")
    crew.start(requeue_jitter=1_000)
    (first, *_) = events.wait_for(SweepDone)
    assert 200 <= first.swept.requeued <= 350


def test_a_job_of_a_short_lease_never_waits_for_a_long_jitter(tasks: TaskRegistry) -> None:
    tasks.task(name="short", visibility_timeout=2)(lambda _session: None)
    tasks.task(name="long", visibility_timeout=200)(lambda _session: None)
    assert (requeue_jitter(60, tasks), requeue_jitter(0.1, tasks)) == (0.5, 0.1)
