"""What the loop remembers of its queues: where the last claim ended, whose turn it is, what hints have said."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from sa_jobqueue import ClaimedJob
from sa_jobqueue.exchange import Place
from sa_jobqueue.statements import hint
from sa_jobqueue.worker.lanes import Lane, Lanes

_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


def jobs(*ids: int) -> list[ClaimedJob]:
    return [
        ClaimedJob(n, "q", "t", {}, {}, 3, 1, 5, 1, _NOON, _NOON, _NOON, "me", None, None, runnable_since=_NOON)
        for n in ids
    ]


def ready_lane() -> Lane:
    return Lane("q", {"t": 30.0}, ready=True)


def test_the_first_claim_begins_at_the_head_and_the_next_one_behind_it() -> None:
    lane = ready_lane()
    assert lane.begins(100) is None
    lane.came(jobs(1, 2), 2)
    assert lane.begins(100.5) == Place(3, _NOON, 2)


def test_a_second_after_the_last_full_pass_there_is_another_one() -> None:
    lane = ready_lane()
    lane.begins(100)
    lane.came(jobs(1, 2), 2)
    lane.begins(100.9)
    lane.came(jobs(3, 4), 2)
    assert lane.begins(101) is None


def test_a_claim_that_comes_short_behind_the_last_one_is_followed_by_a_full_pass() -> None:
    lane = ready_lane()
    lane.begins(100)
    lane.came(jobs(1, 2), 2)
    lane.begins(100.1)
    lane.came(jobs(3), 2)
    assert lane.ready
    assert lane.begins(100.2) is None


def test_a_full_pass_that_comes_short_has_found_everything() -> None:
    lane = ready_lane()
    lane.begins(100)
    lane.came(jobs(1), 2)
    assert not lane.ready


def lanes(*queues: str) -> Lanes:
    return Lanes(Lane(queue, {"t": 30.0}) for queue in queues)


def test_each_lane_comes_first_once_in_as_many_turns_as_there_are_lanes() -> None:
    three = lanes("a", "b", "c")
    turns = [[lane.queue for lane in three.in_turn()] for _ in range(3)]
    assert sorted(turn[0] for turn in turns) == ["a", "b", "c"]
    assert [sorted(turn) for turn in turns] == [["a", "b", "c"]] * 3


def test_a_hint_makes_its_own_queue_ready_now_and_once_more_a_moment_later() -> None:
    two = lanes("a", "b")
    assert two.stir_in(100) == inf
    two.hinted(hint.mark("b"), 100)
    assert [lane.queue for lane in two if lane.ready] == ["b"]
    two["b"].came([], 1)
    two.stir(100 + two.stir_in(100) + 0.001)
    assert two.ready
    assert two.stir_in(101) == inf


def test_a_hint_without_a_mark_makes_every_queue_ready() -> None:
    two = lanes("a", "b")
    two.hinted(None, 100)
    assert [lane.ready for lane in two] == [True, True]
