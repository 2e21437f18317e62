"""The plan of faults is a pure function of the seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.testing.chaos.plan import FaultKind, draw_plan

_seeds = st.integers(0, 2**63)


@given(_seeds, st.floats(8, 600))
def test_the_same_seed_gives_the_same_plan(seed: int, seconds: float) -> None:
    assert draw_plan(seed, seconds, lease=1.0) == draw_plan(seed, seconds, lease=1.0)


def test_other_seeds_give_other_plans() -> None:
    assert len({draw_plan(seed, 10, lease=1.0) for seed in range(100)}) == 100


@given(_seeds, st.floats(8, 600))
def test_every_kind_of_fault_is_in_every_plan_and_within_its_time(seed: int, seconds: float) -> None:
    plan = draw_plan(seed, seconds, lease=1.0)
    assert {fault.kind for fault in plan} == set(FaultKind)
    assert list(plan) == sorted(plan, key=lambda fault: fault.at)
    assert all(0 < fault.at < seconds for fault in plan)


@given(_seeds, st.floats(0.5, 30))
def test_every_pause_is_longer_than_the_lease(seed: int, lease: float) -> None:
    pauses = [fault for fault in draw_plan(seed, 60, lease=lease) if fault.kind is FaultKind.PAUSE]
    assert all(fault.seconds > lease for fault in pauses)


def test_a_server_that_is_not_ours_is_not_restarted() -> None:
    kinds = {fault.kind for fault in draw_plan(1, 60, lease=1.0, restarts=False)}
    assert kinds == set(FaultKind) - {FaultKind.RESTART}


def test_a_longer_run_has_more_faults() -> None:
    assert len(draw_plan(1, 120, lease=1.0)) > 2 * len(draw_plan(1, 30, lease=1.0))
