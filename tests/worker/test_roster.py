"""The pure roster: which worker processes there should be."""

from __future__ import annotations

import pytest

from sa_jobqueue import Backoff
from sa_jobqueue.worker.roster import STEADY, TRIES, Place, Roster


def roster(processes: int = 1, *, until_empty: bool = False) -> Roster:
    return Roster(processes, until_empty, backoff=Backoff(base=1, cap=30, jitter=0))


def filled(each: Roster, *, serving: bool = True, now: float = 0.0) -> Place:
    place = each.to_fill(now)[0]
    each.filled(place)
    if serving:
        each.serving(place, now)
    return place


def test_a_new_roster_fills_every_place_at_once() -> None:
    new = roster(3)
    assert len(new.to_fill(0)) == 3
    assert new.wait(0) == 0
    assert not new.done()


def test_a_place_is_filled_again_after_a_pause_that_doubles_with_each_quick_death() -> None:
    each, now, pauses = roster(), 0.0, []
    for _ in range(7):
        pause = each.ended(filled(each, now=now), -9, now)
        assert pause is not None
        assert each.wait(now) == pause
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_death_after_a_steady_life_is_the_first_one_again() -> None:
    each = roster()
    each.ended(filled(each), -9, 1)
    assert each.ended(filled(each, now=2), -9, 2 + STEADY) == 1


def test_the_pause_of_one_place_holds_up_no_other() -> None:
    each = roster(2)
    place = filled(each)
    each.ended(place, -9, 0)
    assert place not in each.to_fill(0)
    assert len(each.to_fill(0)) == 1


@pytest.mark.parametrize(("code", "told"), [(1, 1), (3, 3), (-11, 139), (0, 1)])
def test_if_none_has_ever_served_the_third_death_ends_all_with_its_code(code: int, told: int) -> None:
    each, now = roster(2), 0.0
    for _ in range(TRIES):
        assert not each.gave_up
        now += each.ended(filled(each, serving=False, now=now), code, now) or 0
    assert (each.gave_up, each.code) == (True, told)


def test_a_misuse_is_not_tried_again() -> None:
    each = roster(2)
    assert each.ended(filled(each, serving=False), 2, 0) is None
    assert (each.gave_up, each.code, each.done()) == (True, 2, True)


def test_once_one_has_served_no_death_ends_all() -> None:
    each, now = roster(2), 0.0
    filled(each)
    for _ in range(10):
        pause = each.ended(filled(each, serving=False, now=now), 2, now)
        assert pause is not None
        now += pause
    assert not each.gave_up


def test_a_process_that_found_the_queues_empty_is_not_replaced_and_one_that_was_killed_is() -> None:
    each = roster(2, until_empty=True)
    first, second = filled(each), filled(each)
    assert each.ended(first, 0, 0) is None
    assert each.ended(second, -9, 0) is not None
    assert not each.done()


def test_after_a_stop_nobody_is_replaced_and_the_last_end_is_the_end() -> None:
    each = roster(2)
    first, second = filled(each), filled(each)
    each.ended(first, -9, 0)
    each.stop()
    assert (each.wait(0), each.done()) == (None, False)
    assert each.ended(second, 0, 1) is None
    assert (each.done(), each.code) == (True, 0)
