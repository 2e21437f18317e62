"""Graceful and less graceful stops: nothing is claimed after one, and what was not done is given back."""

from __future__ import annotations

import signal
from threading import Event
from typing import TYPE_CHECKING, Any

from sa_jobqueue.observe import RunEnded, RunStarted, WorkerStarted, WorkerStopped, WorkerStopping
from tests.behaviour.business import Effect
from tests.proofs.app import QUEUE
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import EnqueuedJob, TaskRegistry
    from tests.behaviour.observer import Observer
    from tests.proofs.crew import Crew, Events
    from tests.proofs.process import WorkerProcess


def given_back(observer: Observer, job: EnqueuedJob) -> tuple[Any, ...]:
    row = observer.job(job.id)
    assert row is not None
    return row.status, row.attempt, row.claimed_by


def test_an_idle_worker_that_polls_once_a_minute_ends_soon_after_sigterm_with_code_0(
    start_process: Callable[..., WorkerProcess],
) -> None:
    worker = start_process(poll_interval=60, sweep_interval=60)
    worker.signal(signal.SIGTERM)
    assert worker.ended(timeout=20) == 0
    assert "WorkerStopped" in worker.lines


def test_after_sigterm_the_running_handlers_end_and_nothing_is_claimed_into_their_slots(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    worker = start_process(concurrency=2)
    for running in (enqueue("hold", {"name": "one"}), enqueue("hold", {"name": "two"})):
        worker.expect(f"holding {running.id}")
    worker.signal(signal.SIGTERM)
    worker.expect("WorkerStopping")
    late = enqueue("mark", {"name": "late"})
    worker.go_on()
    wait_until(observer.effects, timeout=60, what="the first handler to end")
    worker.go_on()
    assert worker.ended() == 0
    assert sorted(observer.effects()) == ["one", "two"]
    assert given_back(observer, late) == ("queued", 0, None)


def test_a_handler_that_outlasts_the_grace_is_released_at_once_and_its_attempt_given_back(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    worker = start_process(grace=0.3, lease=600)
    job = enqueue("hold", {"name": "never"})
    worker.expect(f"holding {job.id}")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert f"RunEnded {job.id} released" in worker.lines
    assert given_back(observer, job) == ("queued", 0, None)
    assert observer.effects() == []


def test_a_second_signal_ends_the_worker_at_once_and_still_gives_its_jobs_back(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob], observer: Observer
) -> None:
    worker = start_process(grace=600, lease=600)
    job = enqueue("hold", {"name": "never"})
    worker.expect(f"holding {job.id}")
    worker.signal(signal.SIGTERM)
    worker.expect("WorkerStopping")
    worker.signal(signal.SIGINT)
    assert worker.ended() == 0
    assert given_back(observer, job) == ("queued", 0, None)


def test_a_released_job_keeps_its_place_ahead_of_what_came_later(
    start_process: Callable[..., WorkerProcess], enqueue: Callable[..., EnqueuedJob]
) -> None:
    worker = start_process(grace=0)
    first = enqueue("hold", {"name": "first"})
    worker.expect(f"holding {first.id}")
    later = enqueue("hold", {"name": "later"})
    worker.signal(signal.SIGTERM)
    worker.ended()

    heir = start_process()
    heir.expect(f"holding {first.id}")
    assert heir.said("holding") == [first.id]
    heir.go_on()
    heir.expect(f"holding {later.id}")


def test_stop_may_be_called_from_another_thread_while_a_handler_runs(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE)
    def hold(session: Session) -> None:
        go_on.wait(30)
        session.add(Effect(name="whole"))

    enqueue("hold")
    worker = crew.start()
    events.wait_for(RunStarted)
    worker.stop()
    (stopping,) = events.wait_for(WorkerStopping)
    go_on.set()
    crew.wait()
    assert (stopping.running, observer.effects()) == (1, ["whole"])


def test_a_stop_that_comes_before_the_start_ends_the_next_run_and_only_that(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], events: Events
) -> None:
    @tasks.task(queue=QUEUE)
    def brief(_session: Session) -> None: ...

    job, worker = enqueue("brief"), crew.worker()
    worker.stop()
    worker.run()
    assert events.of(RunStarted) == []
    worker.run(until_empty=True)
    assert [event.job.id for event in events.of(RunEnded)] == [job.id]


def test_a_handler_that_never_comes_back_is_given_up_when_the_grace_is_over(
    tasks: TaskRegistry,
    crew: Crew,
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    events: Events,
    never: Event,
) -> None:
    @tasks.task(queue=QUEUE)
    def hang(session: Session) -> None:
        session.add(Effect(name="never"))
        session.flush()
        never.wait(60)

    job, worker = enqueue("hang"), crew.start(grace=0.2)
    events.wait_for(RunStarted)
    worker.stop()
    crew.wait()
    never.set()
    assert events.of(WorkerStopped)[0].abandoned == 1
    assert (given_back(observer, job), observer.effects()) == (("queued", 0, None), [])


def test_the_signal_handlers_of_the_application_are_put_back(tasks: TaskRegistry, crew: Crew, events: Events) -> None:
    tasks.task(queue=QUEUE, name="nothing")(lambda _session: None)
    seen: list[Any] = []
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    crew.worker(subscribers=[events, lambda _event: seen.append(signal.getsignal(signal.SIGTERM))]).run(
        until_empty=True
    )
    assert events.of(WorkerStarted)
    assert seen[0] is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_stop_gives_the_jobs_back_that_wait_for_a_slot_in_their_old_order(
    tasks: TaskRegistry, crew: Crew, enqueue: Callable[..., EnqueuedJob], observer: Observer, events: Events
) -> None:
    go_on = Event()

    @tasks.task(queue=QUEUE)
    def mark(session: Session, name: str) -> None:
        session.add(Effect(name=name))

    @tasks.task(queue=QUEUE)
    def hold(_session: Session) -> None:
        assert go_on.wait(30)

    for n in range(100):
        enqueue("mark", {"name": str(n)})
    enqueue("hold")
    waiting = [enqueue("mark", {"name": "waits"}) for _ in range(3)]
    worker = crew.start(concurrency=1)
    events.wait_for(RunStarted, count=101)
    wait_until(lambda: observer.state(waiting[-1].id) == "claimed", timeout=20, what="a claim ahead of the slot")
    worker.stop()
    events.wait_for(WorkerStopping)
    assert [given_back(observer, job) for job in waiting] == [("queued", 0, None)] * 3
    rows = observer.all("SELECT id FROM jobqueue_job WHERE status = 'queued' ORDER BY priority, visible_at, id")
    assert [row.id for row in rows] == [job.id for job in waiting]
    go_on.set()
    events.wait_for(WorkerStopped)
