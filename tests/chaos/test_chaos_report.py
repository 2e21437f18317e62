"""A run that hurt nobody proves nothing, and says so."""

from __future__ import annotations

from typing import Any

from sa_jobqueue.testing.chaos.checker import Anomaly, Finding
from sa_jobqueue.testing.chaos.injector import Toll
from sa_jobqueue.testing.chaos.remains import Remains
from sa_jobqueue.testing.chaos.report import Report, sum_up


def _report(toll: Toll, **changes: Any) -> Report:
    given: dict[str, Any] = {"findings": [], "left": [], "restarts": True, **changes}
    return sum_up(seed=1, seconds=8.0, drain_seconds=1.0, toll=toll, history=[], remains=Remains(), **given)


def _full_toll(**changes: int) -> Toll:
    toll = Toll(**{"kills": 1, "pauses": 1, "restarts": 1, **changes})
    toll.terminated["handler"] = 1
    return toll


def test_a_run_in_which_every_kind_of_fault_hit_and_nothing_broke_is_a_proof() -> None:
    assert _report(_full_toll()).problems() == []


def test_faults_that_hit_nobody_do_not_count() -> None:
    toll = _full_toll(kills=0, pauses=0, idle_kills=3, idle_pauses=3)
    assert _report(toll).problems() == ["no kill hit anything; run longer", "no pause hit anything; run longer"]


def test_restarts_are_asked_for_only_of_a_server_of_our_own() -> None:
    assert _report(_full_toll(restarts=0), restarts=False).problems() == []


def test_broken_promises_and_unfinished_jobs_are_problems() -> None:
    report = _report(_full_toll(), findings=[Finding(Anomaly.LOST, "a", "why")], left=["id=1"])
    assert report.problems() == ["lost: 1", "1 or more jobs did not finish"]
