"""A worker process is paused at every boundary, another owner comes, and the first one wakes up late."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.crash import pausing
from tests.crash.killing import WORK, Delivery

if TYPE_CHECKING:
    from tests.crash.ground import Ground
    from tests.crash.pausing import Zombie

_LEASED = [Delivery(WORK, task) for task in ("write", "awrite", "outlast_a_beat", "fail_first")]
_IN_TRANSACTION = [Delivery(f"tests.crash.service:{run}", "write") for run in ("serve", "aserve")]


@pytest.mark.parametrize("delivery", _LEASED, ids=str)
def test_a_zombie_changes_nothing_of_its_successors_job_reports_it_and_goes_on(
    ground: Ground, delivery: Delivery
) -> None:
    zombies = pausing.pause_everywhere(ground, delivery)
    pausing.inherit(ground, zombies)
    before = pausing.rows(ground, zombies)
    pausing.revive(ground, zombies, delivery.task)
    assert pausing.rows(ground, zombies) == before
    pausing.finish(ground, zombies)
    for zombie in zombies:
        zombie.process.finish()
    assert [flaw for zombie in zombies for flaw in _flaws(ground, zombie)] == []
    assert _losers(ground) == {(zombie.process.pid, zombie.job_id): 1 for zombie in zombies if zombie.held}


def test_a_zombie_whose_job_is_done_by_now_adds_no_effect(ground: Ground) -> None:
    zombies = pausing.pause_everywhere(ground, Delivery(WORK, "write", keyed=True))
    pausing.inherit(ground, zombies)
    pausing.finish(ground, zombies)
    pausing.revive(ground, zombies, "write")
    for zombie in zombies:
        zombie.process.finish()
    assert [flaw for zombie in zombies for flaw in _flaws(ground, zombie)] == []
    assert _losers(ground) == {(zombie.process.pid, zombie.job_id): 1 for zombie in zombies if zombie.held}


@pytest.mark.parametrize("delivery", _IN_TRANSACTION, ids=str)
def test_a_zombie_in_the_callers_transaction_is_ended_by_the_server_and_gets_its_error(
    ground: Ground, delivery: Delivery
) -> None:
    zombies = pausing.pause_everywhere(ground, delivery)
    pausing.inherit(ground, zombies)
    pausing.finish(ground, zombies)
    pausing.revive(ground, zombies, delivery.task)
    for zombie in zombies:
        zombie.process.finish()
    assert [flaw for zombie in zombies for flaw in _flaws(ground, zombie)] == []
    failed = {process for process, _event, _job in ground.events()}
    assert failed == {zombie.process.pid for zombie in zombies if _in_transaction(zombie)}


def _flaws(ground: Ground, zombie: Zombie) -> list[str]:
    author = os.getpid() if zombie.heir else zombie.process.pid
    ids = [zombie.job_id] + ([zombie.next_id] if zombie.next_id else [])
    truths = {
        "the effect": ground.effects(zombie.queue) == [author],
        "the effect of the next job": ground.effects(f"next-{zombie.queue}") == [zombie.process.pid] * len(ids[1:]),
        "the end": all(fate.status == "gone" for fate in ground.fates(ids)),
    }
    return [f"{what}: {zombie}" for what, true in truths.items() if not true]


def _losers(ground: Ground) -> dict[tuple[int, int], int]:
    events = ground.events().items()
    return {(process, job): count for (process, event, job), count in events if event == "LeaseWasLost"}


def _in_transaction(zombie: Zombie) -> bool:
    """Whether it stood behind the first statement of a transaction, and before the end of it."""
    return not str(zombie.point).startswith(("before claim", "after COMMIT"))
