"""The pure machine: what a worker does next."""

from __future__ import annotations

import pytest

from sa_jobqueue.worker.machine import Machine, Stopping, few_sizes


def machine(*, concurrency: int = 4, drain: bool = False) -> Machine:
    return Machine(concurrency=concurrency, poll_interval=1, sweep_interval=1, grace=30, drain=drain)


def at_work(*, seconds: float, concurrency: int = 4) -> Machine:
    """A machine with no slot free, some of whose jobs have ended after taking a slot for so many seconds each."""
    busy = machine(concurrency=concurrency)
    busy.claimed(concurrency)
    for _ in range(100):
        busy.took(seconds)
    return busy


def test_a_new_machine_looks_and_asks_for_as_many_jobs_as_it_has_slots() -> None:
    new = machine(concurrency=4)
    assert new.looks(100)
    assert new.room(100) == 4


def test_a_slot_takes_as_many_jobs_as_share_its_transaction() -> None:
    assert machine(concurrency=4).room(100, breadth=25) == 100


def test_a_full_machine_asks_for_nothing_and_waits_only_for_its_next_look() -> None:
    full = machine(concurrency=2)
    full.looked(100, found=True, due_in=None)
    full.claimed(2)
    assert full.room(100) == 0
    assert full.wait(100) == 1


def test_a_slot_that_comes_free_is_filled_at_once() -> None:
    full = machine(concurrency=2)
    full.claimed(2)
    full.let_go(1)
    assert full.room(100) == 1


def test_jobs_that_end_fast_are_claimed_ahead_by_half_a_second() -> None:
    fast = at_work(seconds=0.01)
    assert fast.ahead == pytest.approx(200, abs=1)
    assert fast.room(100) == fast.ahead


def test_a_machine_waits_until_half_of_what_it_claimed_ahead_is_used_up() -> None:
    fast = at_work(seconds=0.01)
    fast.claimed(fast.low_water + 1)
    assert fast.room(100) == 0


def test_a_queue_with_nothing_in_line_may_claim_for_one_turn_though_others_fill_the_line() -> None:
    fast = at_work(seconds=0.01)
    fast.claimed(fast.ahead)
    assert (fast.room(100), fast.room(100, in_line=False), fast.room(100, 5, in_line=False)) == (0, 1, 5)


def test_while_jobs_take_long_no_queue_claims_beyond_the_slots() -> None:
    assert at_work(seconds=10).room(100, in_line=False) == 0


def test_jobs_that_take_long_are_not_claimed_ahead() -> None:
    assert at_work(seconds=2.5).ahead == 0


def test_one_fast_job_among_slow_ones_is_no_reason_to_claim_ahead() -> None:
    slow = at_work(seconds=10)
    slow.took(0.001)
    assert slow.ahead == 0


def test_before_anything_has_ended_nothing_is_claimed_ahead() -> None:
    assert machine().ahead == 0


def test_jobs_in_line_are_looked_after_even_if_nothing_else_is_due() -> None:
    busy = Machine(concurrency=1, poll_interval=60, sweep_interval=60, grace=30)
    busy.looked(100, found=True, due_in=None)
    busy.claimed(5)
    assert busy.wait(100) == 2
    assert busy.in_line_too_long(100) == 98


def test_looks_that_find_nothing_follow_at_longer_and_longer_pauses_up_to_the_poll_interval() -> None:
    idle = machine()
    pauses = []
    for _ in range(8):
        idle.looked(100, found=False, due_in=None)
        pauses.append(idle.wait(100))
    assert pauses == sorted(pauses)
    assert pauses[-3:] == [1, 1, 1]


def test_after_work_the_next_look_follows_soon() -> None:
    worked = machine()
    worked.looked(100, found=True, due_in=None)
    worked.claimed(1)
    worked.let_go(1)
    worked.ran_dry(100.1)
    assert worked.wait(100.1) < 0.1


def test_without_work_running_dry_changes_nothing() -> None:
    idle = machine()
    idle.looked(100, found=True, due_in=None)
    idle.ran_dry(100)
    assert idle.wait(100) == 1


def test_a_look_is_due_when_the_first_row_is() -> None:
    idle = machine()
    idle.looked(100, found=True, due_in=0.4)
    assert idle.wait(100) == pytest.approx(0.4)


def test_an_outage_puts_off_claims_and_looks_alike() -> None:
    cut_off = machine()
    cut_off.outage(10, 100)
    assert (cut_off.room(109), cut_off.looks(109)) == (0, False)
    assert (cut_off.room(110), cut_off.looks(110)) == (4, True)


def test_after_a_stop_nothing_is_claimed_or_looked_at_any_more() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert stopping.stopping is Stopping.GRACEFUL
    assert (stopping.room(1000), stopping.looks(1000)) == (0, False)


def test_a_stop_is_over_when_the_last_run_has_ended() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert not stopping.done()
    stopping.let_go(1)
    assert stopping.done()


def test_a_graceful_stop_runs_out_of_grace_when_its_time_is_over() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert stopping.wait(100) == 30
    assert not stopping.out_of_grace(129)
    assert stopping.out_of_grace(130)


def test_a_second_stop_is_out_of_grace_at_once() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    stopping.stop(101)
    assert stopping.out_of_grace(101)


def test_a_machine_that_is_done_does_not_wait() -> None:
    stopped = machine()
    stopped.stop(100)
    assert stopped.wait(100) == 0


def test_waiting_for_runs_that_were_ended_from_outside_does_not_spin() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert stopping.wait(500) > 0


def test_a_drain_asks_whether_all_is_done_only_when_it_is_idle_and_found_nothing() -> None:
    draining = machine(drain=True)
    assert not draining.asks_if_empty(99)
    draining.looked(100, found=False, due_in=None)
    assert draining.asks_if_empty(100)
    draining.claimed(1)
    assert not draining.asks_if_empty(100)


def test_a_worker_that_is_no_drain_never_ends_by_itself() -> None:
    serving = machine()
    serving.looked(100, found=False, due_in=None)
    assert not serving.asks_if_empty(100)
    assert not serving.done()


@pytest.mark.parametrize(("wanted", "size"), [(0, 0), (1, 1), (15, 15), (16, 16), (31, 16), (1000, 512)])
def test_large_claims_come_in_few_sizes_and_never_above_what_is_wanted(wanted: int, size: int) -> None:
    assert few_sizes(wanted) == size
