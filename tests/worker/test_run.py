"""One run, and who may do what to it when handler, keeper and main loop meet."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Event, Thread

import pytest

from sa_jobqueue import ClaimedJob, TaskRegistry
from sa_jobqueue.worker.run import Condemned, Load, Run
from tests.waiting import wait_until

_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
_JOB = ClaimedJob(7, "work", "task", {}, {}, 0, 1, 5, 1, _NOON, _NOON, _NOON, "me", None, None)


@pytest.fixture
def run() -> Run:
    task = TaskRegistry().task(name="task", time_limit=10)(lambda _session: None)
    return Run(_JOB, task, started=100, beaten=100)


def test_only_the_first_who_finishes_a_run_may_say_how_it_ended(run: Run) -> None:
    assert run.finish()
    assert not run.finish()


def test_a_run_is_condemned_for_one_reason_only(run: Run) -> None:
    assert run.condemn(Condemned.LEASE_LOST)
    assert not run.condemn(Condemned.STOPPED)
    assert run.condemned is Condemned.LEASE_LOST


def test_a_run_that_is_over_cannot_be_condemned(run: Run) -> None:
    run.finish()
    assert not run.condemn(Condemned.TIME_LIMIT)
    assert run.condemned is None


def test_a_run_that_has_committed_cannot_be_condemned_any_more(run: Run) -> None:
    run.detach(committed=True)
    run.detach()
    assert run.committed
    assert not run.condemn(Condemned.LEASE_LOST)


def test_only_the_first_who_leaves_a_slot_may_fill_it_again(run: Run) -> None:
    load = Load([run])
    assert load.leave()
    assert not load.leave()


def test_nobody_ends_a_server_process_that_the_handler_has_let_go(run: Run) -> None:
    ended: list[int] = []
    run.attach(4711)
    run.with_backend(ended.append)
    run.detach()
    run.with_backend(ended.append)
    assert ended == [4711]


def test_a_handler_cannot_let_go_of_its_server_process_while_somebody_ends_it(run: Run) -> None:
    run.attach(4711)
    detaching, detached = Event(), Event()

    def detach() -> None:
        detaching.set()
        run.detach()
        detached.set()

    def end(_pid: int) -> None:
        Thread(target=detach, daemon=True).start()
        assert detaching.wait(10)
        assert not detached.wait(0.1)

    run.with_backend(end)
    wait_until(detached.is_set, what="the handler to go on")


def test_a_handler_that_still_waits_for_its_turn_is_not_overdue(run: Run) -> None:
    assert not run.overdue(1_000)


def test_the_time_limit_counts_from_the_handlers_turn_and_not_from_the_claim(run: Run) -> None:
    assert run.begin()
    assert run.started > 100
    assert not run.overdue(run.started + 9)
    assert run.overdue(run.started + 11)


def test_a_run_that_was_given_up_while_it_waited_does_not_begin(run: Run) -> None:
    run.condemn(Condemned.STOPPED)
    run.finish()
    assert not run.begin()
