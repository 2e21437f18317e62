"""One paused process at a time, where its locks and its late word matter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import TaskRegistry, Worker, current_job
from sa_jobqueue.cli.checks import examine
from sa_jobqueue.observe import Event, LeaseWasLost, RunEnded
from sa_jobqueue.testing.crash.points import Actor, CrashPoint
from tests.crash.app import LEASE, SHORT_LEASE, Effect
from tests.crash.killing import WORK
from tests.crash.receiver import receiver
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.crash.ground import Ground

_SERVE = "tests.crash.service:serve"


def test_without_a_timeout_the_row_stays_parked_until_the_paused_process_is_gone_and_doctor_says_so(
    ground: Ground,
) -> None:
    job_id = ground.enqueue("q", "write")
    sleeper = ground.start(_SERVE, ["q"], CrashPoint(Actor.LOOP, "before", "ack"))
    assert sleeper.reaches()
    sleeper.pause()
    ground.start(_SERVE, ["q"]).finish()
    assert ground.queue.locked()
    assert f"pid {sleeper.backends[-1]}, " in _seen_by_doctor(ground, "parked rows")
    assert ground.fates([job_id])[0].effects == 0
    sleeper.kill()
    ground.queue.wait_until_gone(sleeper.backends)
    rescuer = ground.start(_SERVE, ["q"])
    rescuer.finish()
    assert ground.effects("q") == [rescuer.pid]


def test_the_idle_timeout_of_the_worker_frees_what_its_paused_handler_had_locked(ground: Ground) -> None:
    ground.enqueue("q", "write")
    sleeper = ground.start(WORK, ["q"], CrashPoint(Actor.HANDLER, "before", "COMMIT after ack"), IDLE="0.5")
    assert sleeper.reaches()
    sleeper.pause()
    assert ground.queue.locked()
    wait_until(lambda: not ground.queue.locked(), timeout=30, what="the server to end the idle transaction")
    ground.queue.expire_leases()
    rescuer = ground.start(WORK, ["q"])
    rescuer.finish()
    sleeper.resume()
    sleeper.finish()
    assert ground.effects("q") == [rescuer.pid]


def test_the_control_timeout_frees_what_a_worker_paused_in_its_own_transaction_had_locked(ground: Ground) -> None:
    ground.enqueue("q", "fail_first")
    sleeper = ground.start(WORK, ["q"], CrashPoint(Actor.HANDLER, "before", "COMMIT after retry"), CONTROL="0.5")
    assert sleeper.reaches()
    sleeper.pause()
    assert ground.queue.locked()
    wait_until(lambda: not ground.queue.locked(), timeout=30, what="the server to end the record's transaction")
    ground.queue.expire_leases()
    rescuer = ground.start(WORK, ["q"])
    rescuer.finish()
    sleeper.resume()
    sleeper.finish()
    assert ground.effects("q") == [rescuer.pid]


def test_a_receiver_that_remembers_tokens_refuses_the_zombies_late_call(ground: Ground) -> None:
    ground.enqueue("q", "call")
    with receiver() as (url, answers):
        sleeper = ground.start(WORK, ["q"], CrashPoint(Actor.HANDLER, "after", "SELECT effect"), RECEIVER=url)
        assert sleeper.reaches()
        sleeper.pause()
        ground.queue.expire_leases()
        ground.start(WORK, ["q"], RECEIVER=url).finish()
        sleeper.resume()
        sleeper.finish()
    assert answers == [("q", 2, 200), ("q", 1, 409)]


def _seen_by_doctor(ground: Ground, check: str) -> str:
    with ground.engine.connect() as connection:
        return next(finding.seen for finding in examine(connection, None) if finding.check == check)


@pytest.mark.parametrize("hangs_on", [True, False], ids=["given up", "comes back"])
def test_a_worker_that_claims_its_own_expired_job_again_lets_only_the_second_run_count(
    ground: Ground, *, hangs_on: bool
) -> None:
    events: list[Event] = []
    second_began, first_lost, over = threading.Event(), threading.Event(), threading.Event()
    tasks = TaskRegistry()

    @tasks.task(visibility_timeout=SHORT_LEASE if hangs_on else LEASE)
    def write(session: Session, name: str) -> None:
        if current_job().attempt == 1:
            ground.queue.expire_leases()
            assert (over if hangs_on else second_began).wait(60)
        else:
            second_began.set()
            assert first_lost.wait(60)
        session.add(Effect(name=f"{name} {current_job().attempt}"))

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, LeaseWasLost):
            first_lost.set()

    ground.enqueue("q", "write", name="run")
    Worker(tasks, sessionmaker(ground.engine), queues=["q"], subscribers=[listen]).run(until_empty=True)
    over.set()
    assert [event.job.attempt for event in events if isinstance(event, LeaseWasLost)] == [1]
    assert [event.job.attempt for event in events if isinstance(event, RunEnded)] == [2]
    assert (len(ground.effects("run 1")), len(ground.effects("run 2"))) == (0, 1)
