"""Worker processes under a supervisor: how they start, die, are replaced and stop."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.processes.app import LOCK
from tests.processes.crowd import Crowd, runs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine

    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer

Supervise = "Callable[..., Crowd]"
Enqueue = "Callable[..., EnqueuedJob]"


@pytest.fixture
def lock(engine: Engine) -> Iterator[Connection]:
    """Holds up the jobs ``await_lock`` until it commits."""
    with engine.connect() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
        yield connection


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_the_connections_of_a_parent_that_opened_its_engine_first_still_work(
    supervise: Callable[..., Crowd], enqueue: Callable[..., EnqueuedJob], observer: Observer, method: str
) -> None:
    for n in range(40):
        enqueue("mark", {"name": str(n)})

    crowd = supervise(processes=4, method=method, opened=method == "fork", until_empty=True)

    assert crowd.ended() == 0
    assert sorted(map(int, set(observer.effects()) - {"of the parent"})) == list(range(40))
    assert len(observer.effects()) == 40 + (method == "fork")
    assert crowd.said("before") == crowd.said("after")


def test_a_forked_process_has_no_connection_of_its_parent(
    supervise: Callable[..., Crowd], enqueue: Callable[..., EnqueuedJob]
) -> None:
    enqueue("tell_backend")
    crowd = supervise(processes=1, method="fork", opened=True, until_empty=True)
    assert crowd.ended() == 0
    (backend,) = crowd.said("backend")
    assert backend not in crowd.said("idle") + crowd.said("before")


def test_each_process_has_a_name_of_its_own_and_so_has_its_successor(supervise: Callable[..., Crowd]) -> None:
    crowd = supervise(processes=2, name="pod")
    first, _ = crowd.await_serving(2)

    os.kill(first, signal.SIGKILL)
    crowd.await_serving(3)

    assert sorted(crowd.names) == ["pod-1", "pod-2", "pod-3"]


@pytest.mark.parametrize("task", ["die", "crash", "leave"])
def test_a_job_that_kills_its_process_is_a_dead_letter_after_its_attempts_and_the_others_go_on(
    supervise: Callable[..., Crowd], enqueue: Callable[..., EnqueuedJob], observer: Observer, task: str
) -> None:
    poison = enqueue(task, max_attempts=3)
    for n in range(5):
        enqueue("mark", {"name": str(n)})

    crowd = supervise(processes=2, lease=1.0)
    wait_until(lambda: observer.dead(poison.id), timeout=60, what="the dead letter")
    wait_until(lambda: len(observer.effects()) == 5, timeout=60, what="the others")

    (dead,) = observer.dead(poison.id)
    assert (dead.reason, [entry["error"] for entry in dead.errors]) == ("lease_expired", ["lease expired"] * 3)
    assert crowd.said("RunStarted").count(poison.id) == len(crowd.ends()) == 3
    crowd.await_serving(5)
    crowd.signal(signal.SIGTERM)
    assert crowd.ended() == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("whom", ["supervisor", "everybody"])
def test_one_signal_lets_running_jobs_end_whether_or_not_the_children_get_it_too(
    supervise: Callable[..., Crowd],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    lock: Connection,
    name: str,
    whom: str,
) -> None:
    jobs = [enqueue("await_lock", {"name": str(n)}) for n in range(2)]
    crowd = supervise(processes=2, grace=600)
    for job in jobs:
        crowd.expect(f"holding {job.id}")

    (crowd.signal_group if whom == "everybody" else crowd.signal)(signal.Signals[name])
    wait_until(lambda: crowd.lines.count("WorkerStopping") == 2, what=f"both to stop: {crowd.lines}")
    lock.commit()

    assert crowd.ended() == 0
    assert sorted(observer.effects()) == ["0", "1"]
    assert crowd.lines.count("WorkerStopping") == 2
    assert [code for _, code in crowd.ends()] == [0, 0]


@pytest.mark.parametrize("whom", ["supervisor", "everybody"])
def test_a_second_signal_gives_running_jobs_back_at_once(
    supervise: Callable[..., Crowd], enqueue: Callable[..., EnqueuedJob], observer: Observer, whom: str
) -> None:
    job = enqueue("wait_for_ever")
    crowd = supervise(processes=2, grace=600)
    crowd.expect(f"holding {job.id}")
    crowd.await_serving(2)
    send = crowd.signal_group if whom == "everybody" else crowd.signal

    send(signal.SIGTERM)
    wait_until(lambda: crowd.lines.count("WorkerStopping") == 2, what=f"both to stop: {crowd.lines}")
    send(signal.SIGTERM)

    assert crowd.ended() == 0
    row = observer.job(job.id)
    assert row is not None
    assert (row.status, row.attempt) == ("queued", 0)


def test_a_third_signal_kills_a_process_that_cannot_stop_and_the_exit_code_says_so(
    supervise: Callable[..., Crowd], enqueue: Callable[..., EnqueuedJob]
) -> None:
    job = enqueue("hang")
    crowd = supervise(processes=1)
    crowd.expect(f"hanging {job.id}")

    for count in (1, 2, 3):
        crowd.signal(signal.SIGTERM)
        wait_until(lambda: crowd.lines.count("SupervisorStopping") == count, what="the signal to arrive")  # noqa: B023 - called in its own turn

    assert crowd.ended() == 1
    assert [code for _, code in crowd.ends()] == [-signal.SIGKILL]


def test_a_child_that_somebody_stops_is_replaced(supervise: Callable[..., Crowd]) -> None:
    crowd = supervise(processes=1)
    (first,) = crowd.await_serving(1)

    os.kill(first, signal.SIGTERM)

    crowd.await_serving(2)
    assert crowd.await_end_of(first) == 0


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_the_children_of_a_supervisor_that_was_killed_let_their_jobs_end_and_leave(
    supervise: Callable[..., Crowd],
    enqueue: Callable[..., EnqueuedJob],
    observer: Observer,
    lock: Connection,
    method: str,
) -> None:
    job = enqueue("await_lock", {"name": "only"})
    crowd = supervise(processes=3, method=method, grace=600)
    crowd.expect(f"holding {job.id}")
    children = crowd.await_serving(3)

    crowd.signal(signal.SIGKILL)
    wait_until(lambda: sum(map(runs, children)) == 1, what="the idle ones to leave")
    lock.commit()

    wait_until(lambda: not any(map(runs, children)), what="the last one to leave")
    assert observer.effects() == ["only"]


def test_a_mistake_that_a_second_try_would_repeat_ends_the_supervisor_with_its_code(
    supervise: Callable[..., Crowd],
) -> None:
    crowd = supervise(processes=1, code=2)

    assert crowd.ended() == 2
    assert len(crowd.said("ProcessStarted")) == 1
    assert "SupervisorGaveUp" in crowd.lines


def test_processes_that_never_come_to_serve_are_given_up_at_the_third_death(supervise: Callable[..., Crowd]) -> None:
    crowd = supervise(processes=1, code=7)

    assert crowd.ended() == 7
    assert [code for _, code in crowd.ends()] == [7, 7, 7]
