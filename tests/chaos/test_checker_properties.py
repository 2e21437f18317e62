"""Whatever honest history is made up, it passes; damage one request in it, and that one is found."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue.testing.chaos.checker import check
from sa_jobqueue.testing.chaos.remains import Effect, Remains
from tests.chaos.tale import effect, enqueue, start

_Life = tuple[int, str]
"""How many runs failed before the end, and the end."""

_lives = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["effect", "death", "alive"])), min_size=1, max_size=8)


def _told(lives: list[_Life]) -> Remains:
    """Runs one after the other, so each transaction is seen by all starts that follow."""
    told = [(f"t{clock}", clock, failures + 1, end) for clock, (failures, end) in enumerate(lives)]
    return Remains(
        orders=dict.fromkeys(tag for tag, *_ in told),
        starts=tuple(start(tag, token, before=clock) for tag, clock, runs, _ in told for token in range(1, runs + 1)),
        effects=tuple(effect(tag, runs, clock) for tag, clock, runs, end in told if end == "effect"),
        deaths=tuple(tag for tag, *_, end in told if end == "death"),
        alive=frozenset(tag for tag, *_, end in told if end == "alive"),
    )


@given(_lives)
def test_an_honest_history_passes(lives: list[_Life]) -> None:
    remains = _told(lives)
    assert check([enqueue(tag) for tag in remains.orders], remains) == []


@given(_lives, st.data())
def test_a_request_whose_only_end_is_taken_away_is_the_one_that_is_lost(
    lives: list[_Life], data: st.DataObject
) -> None:
    remains = _told(lives)
    tag = data.draw(st.sampled_from(sorted(remains.orders)))
    robbed = replace(
        remains,
        effects=tuple(each for each in remains.effects if each.tag != tag),
        deaths=tuple(each for each in remains.deaths if each != tag),
        alive=remains.alive - {tag},
    )
    assert [(finding.anomaly, finding.subject) for finding in check([], robbed)] == [("lost", tag)]


@given(_lives, st.integers(1, 3))
def test_each_effect_that_is_repeated_later_is_found_as_often(lives: list[_Life], times: int) -> None:
    remains = _told(lives)
    again = [_later(each, turn) for each in remains.effects for turn in range(times)]
    found = [finding.anomaly for finding in check([], replace(remains, effects=(*remains.effects, *again)))]
    assert found.count("duplicate_effects") == found.count("revived") == len(again)


def _later(first: Effect, turn: int) -> Effect:
    return replace(first, run=f"again {turn}", token=first.token + 1 + turn, transaction=1_000 + turn)
