"""The pure machine: what a worker does next."""

from __future__ import annotations

from sa_jobqueue.worker.machine import Machine, Stopping


def machine(*, concurrency: int = 4, drain: bool = False) -> Machine:
    return Machine(concurrency=concurrency, poll_interval=1, sweep_interval=5, grace=30, drain=drain)


def test_a_new_machine_sweeps_and_asks_for_as_many_jobs_as_it_has_slots() -> None:
    new = machine(concurrency=4)
    assert new.wants_sweep(100)
    assert new.wants_jobs(100) == 4


def test_a_full_machine_asks_for_nothing_and_waits_only_for_its_next_sweep() -> None:
    full = machine(concurrency=2)
    full.swept(0, 100)
    full.claimed(2)
    full.polled(100)
    assert full.wants_jobs(100) == 0
    assert full.wait(100) == 5


def test_a_slot_that_comes_free_is_filled_at_once() -> None:
    full = machine(concurrency=2)
    full.claimed(2)
    full.polled(100)
    full.finished()
    assert full.wants_jobs(100) == 1


def test_a_poll_that_left_slots_empty_is_followed_by_a_pause() -> None:
    idle = machine(concurrency=2)
    idle.swept(0, 100)
    idle.claimed(1)
    idle.polled(100)
    assert idle.wants_jobs(100.9) == 0
    assert idle.wait(100.5) == 0.5
    assert idle.wants_jobs(101) == 1


def test_what_a_sweep_has_moved_is_polled_for_without_waiting() -> None:
    idle = machine()
    idle.polled(100)
    idle.swept(3, 100.2)
    assert idle.wants_jobs(100.2) == 4


def test_a_sweep_that_moved_nothing_wakes_nobody() -> None:
    idle = machine()
    idle.polled(100)
    idle.swept(0, 100.2)
    assert idle.wants_jobs(100.2) == 0


def test_an_outage_puts_off_polls_and_sweeps_alike() -> None:
    cut_off = machine()
    cut_off.outage(10, 100)
    assert (cut_off.wants_jobs(109), cut_off.wants_sweep(109)) == (0, False)
    assert (cut_off.wants_jobs(110), cut_off.wants_sweep(110)) == (4, True)


def test_after_an_outage_it_polls_at_once_and_leaves_the_sweep_for_later() -> None:
    cut_off = machine()
    cut_off.outage(10, 100)
    cut_off.recovered(3, 110)
    assert (cut_off.wants_jobs(110), cut_off.wants_sweep(112), cut_off.wants_sweep(113)) == (4, False, True)


def test_after_a_stop_nothing_is_claimed_or_swept_any_more() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert stopping.stopping is Stopping.GRACEFUL
    assert (stopping.wants_jobs(1000), stopping.wants_sweep(1000)) == (0, False)


def test_a_stop_is_over_when_the_last_run_has_ended() -> None:
    stopping = machine()
    stopping.claimed(1)
    stopping.stop(100)
    assert not stopping.done()
    stopping.finished()
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
    draining.polled(100)
    assert draining.asks_if_empty(100)
    draining.claimed(1)
    assert not draining.asks_if_empty(100)


def test_a_worker_that_is_no_drain_never_ends_by_itself() -> None:
    serving = machine()
    serving.polled(100)
    assert not serving.asks_if_empty(100)
    assert not serving.done()
