"""A worker process is killed at every boundary between it and the database, one after the other."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from tests.crash.killing import WORK, Death, Delivery, kill_everywhere

if TYPE_CHECKING:
    from tests.crash.ground import Ground

_SERVE, _ASERVE = "tests.crash.service:serve", "tests.crash.service:aserve"
_LEASED = [
    Delivery(WORK, task, last=last, keyed=keyed)
    for task, last, keyed in product(["write", "awrite"], [False, True], [False, True])
] + [
    Delivery(WORK, "outlast_a_beat"),
    Delivery(WORK, "core_write", keyed=True),
    Delivery(WORK, "acore_write", last=True),
]
_IN_TRANSACTION = [
    Delivery(run, "write", last=last, keyed=keyed, rescue=run)
    for run, last, keyed in product([_SERVE, _ASERVE], [False, True], [False, True])
]
_FAILING = [
    Delivery(WORK, "fail_first"),
    Delivery(WORK, "fail", last=True),
    Delivery("tests.crash.app:work_until_it_has_written", "outlast_a_beat"),
]


@pytest.mark.parametrize("delivery", _LEASED, ids=str)
def test_a_leased_job_survives_a_kill_at_every_boundary_with_one_effect(ground: Ground, delivery: Delivery) -> None:
    deaths = kill_everywhere(ground, delivery)
    assert [flaw for death in deaths for flaw in _flaws(death, delivery)] == []


@pytest.mark.parametrize("delivery", _IN_TRANSACTION, ids=str)
def test_a_job_in_the_callers_transaction_survives_a_kill_at_every_boundary(ground: Ground, delivery: Delivery) -> None:
    deaths = kill_everywhere(ground, delivery)
    assert [flaw for death in deaths for flaw in _flaws(death, delivery)] == []
    assert {death.before.attempt for death in deaths} == {0, None}


@pytest.mark.parametrize("delivery", _FAILING, ids=str)
def test_a_kill_while_a_failure_or_a_release_is_recorded_loses_no_job(ground: Ground, delivery: Delivery) -> None:
    deaths = kill_everywhere(ground, delivery)
    ends = {(death.after.status, death.after.effects) for death in deaths}
    assert ends <= ({("failed", 0), ("lease_expired", 0)} if delivery.last else {("gone", 1)})
    assert all(death.after.attempt == 1 for death in deaths if delivery.last)


def test_the_enumeration_holds_every_named_point(ground: Ground) -> None:
    points = {str(point) for point in Delivery(WORK, "outlast_a_beat").rehearse(ground)}
    assert points >= {
        "before claim of the loop",
        "after claim of the loop",
        "after INSERT effect of the handler",
        "before heartbeat of the keeper",
        "after heartbeat of the keeper",
        "before ack of the handler",
        "before COMMIT after ack of the handler",
        "after COMMIT after ack of the handler",
    }


def _flaws(death: Death, delivery: Delivery) -> list[str]:
    """What contradicts the promise, in words; ``claimed`` and ``acked`` are what the server had committed."""
    claimed = death.had("after", "claim" if delivery.leased else "COMMIT after claim")
    acked = death.had("after", "COMMIT after ack")
    buried = delivery.last and claimed and not acked
    before, after = death.before, death.after
    told = (1,) if acked or not claimed else (2,)
    truths = {
        "the row after the death": before.status == ("gone" if acked else "claimed" if claimed else "queued"),
        "the attempt after the death": acked or before.attempt == int(claimed),
        "the effect after the death": before.effects == int(acked),
        "the end": after.status == ("lease_expired" if buried else "gone"),
        "the effects": after.effects == int(not buried),
        "the dedup rows": after.dedup_rows == int(not buried),
        "the attempts": after.outcomes == (() if buried else tuple(("done", attempt) for attempt in told)),
        "the attempts of the dead letter": not buried or after.attempt == 1,
    }
    return [f"{what}: {death}" for what, true in truths.items() if not true]
