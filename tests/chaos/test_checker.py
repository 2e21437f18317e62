"""The checker can fail: each broken promise is found in a history made by hand, and an honest one passes."""

from __future__ import annotations

import pytest

from sa_jobqueue.testing.chaos.history import Kind
from tests.chaos.tale import effect, enqueue, findings, start, suppressed


def test_requests_that_came_to_one_end_each_are_in_order() -> None:
    found = findings(
        [enqueue("done"), enqueue("dead"), enqueue("waiting"), enqueue("undone", Kind.FAIL)],
        orders=["done", "dead", "waiting"],
        starts=(start("done", 1, before=5), start("dead", 1, before=6)),
        effects=(effect("done", 1, 7),),
        deaths=("dead",),
        alive=frozenset({"waiting"}),
    )
    assert found == {}


def test_a_committed_enqueue_of_which_nothing_is_left_is_lost() -> None:
    assert findings([enqueue("a")], orders=["a"]) == {"lost": 1}


def test_an_enqueue_that_was_confirmed_and_whose_order_is_gone_is_lost() -> None:
    assert findings([enqueue("a")]) == {"lost": 1}


@pytest.mark.parametrize("kind", [Kind.INFO, Kind.INVOKE])
def test_an_enqueue_whose_answer_was_lost_need_not_be_there(kind: Kind) -> None:
    assert findings([enqueue("a", kind)]) == {}


@pytest.mark.parametrize("kind", [Kind.INFO, Kind.INVOKE])
def test_an_enqueue_whose_answer_was_lost_is_lost_itself_if_its_order_is_there_and_its_job_is_not(kind: Kind) -> None:
    assert findings([enqueue("a", kind)], orders=["a"]) == {"lost": 1}


def test_a_dead_letter_that_was_brought_back_and_vanished_is_lost() -> None:
    assert findings([enqueue("a")], orders=["a"], deaths=("a",), redrives=("a",)) == {"lost": 1}


def test_a_request_whose_effect_another_one_with_its_key_has_had_is_not_lost() -> None:
    orders: dict[str, str | None] = {"a": "k", "b": "k"}
    assert findings([enqueue("b", key="k")], orders=orders, effects=(effect("a", 1, 7, key="k"),)) == {}


def test_an_effect_of_another_key_is_no_excuse() -> None:
    orders: dict[str, str | None] = {"a": "k", "b": "other"}
    assert findings(orders=orders, effects=(effect("a", 1, 7, key="k"),)) == {"lost": 1}


def test_every_effect_of_a_key_beyond_the_first_is_a_duplicate() -> None:
    orders: dict[str, str | None] = {"a": "k", "b": "k", "c": "k"}
    effects = tuple(effect(tag, 1, at, key="k") for at, tag in enumerate(orders))
    assert findings(orders=orders, effects=effects) == {"duplicate_effects": 2}


def test_a_second_effect_of_a_request_that_ran_again_afterwards_is_a_duplicate_and_a_revival() -> None:
    starts = (start("a", 1, before=5), start("a", 2, before=7))
    found = findings(orders=["a"], starts=starts, effects=(effect("a", 1, 6), effect("a", 2, 8)))
    assert found == {"duplicate_effects": 1, "revived": 1}


def test_two_runs_that_overlap_and_both_commit_are_two_owners_and_no_revival() -> None:
    starts = (start("a", 1, before=5), start("a", 2, before=6))
    found = findings(orders=["a"], starts=starts, effects=(effect("a", 1, 6), effect("a", 2, 7)))
    assert found == {"duplicate_effects": 1, "double_owner": 1}


def test_an_older_token_that_commits_after_a_newer_one_began_is_found_though_the_newer_commits_nothing() -> None:
    starts = (start("a", 1, before=5), start("a", 2, before=6))
    assert findings(orders=["a"], starts=starts, effects=(effect("a", 1, 6),)) == {"double_owner": 1}


def test_two_runs_at_once_under_one_token_are_two_owners() -> None:
    starts = (start("a", 1, before=5, run="x"), start("a", 1, before=5, run="y"))
    found = findings(orders=["a"], starts=starts, effects=(effect("a", 1, 6, run="x"),))
    assert found == {"double_owner": 1}


def test_a_run_that_failed_while_it_was_the_only_one_does_not_disturb_the_next() -> None:
    starts = (start("a", 1, before=5), start("a", 2, before=6))
    assert findings(orders=["a"], starts=starts, effects=(effect("a", 2, 6),)) == {}


@pytest.mark.parametrize("redrives", [(), ("a",)], ids=["without a redrive", "after a redrive"])
def test_a_dead_request_that_takes_effect_is_revived_unless_an_operator_brought_it_back(redrives: tuple[str]) -> None:
    found = findings(orders=["a"], deaths=("a",), redrives=redrives, effects=(effect("a", 2, 9),))
    assert found == ({} if redrives else {"revived": 1})


def test_a_request_that_was_suppressed_and_then_died_is_revived() -> None:
    orders: dict[str, str | None] = {"a": "k", "b": "k"}
    found = findings([suppressed("b")], orders=orders, effects=(effect("a", 1, 7, key="k"),), deaths=("b",))
    assert found == {"revived": 1}


def test_a_run_of_an_enqueue_that_was_rolled_back_is_a_phantom() -> None:
    history = [enqueue("a", Kind.FAIL)]
    assert findings(history, starts=(start("a", 1, before=5),)) == {"phantoms": 1}


def test_an_order_whose_transaction_is_said_to_be_rolled_back_is_a_phantom() -> None:
    assert findings([enqueue("a", Kind.FAIL)], orders=["a"], effects=(effect("a", 1, 6),)) == {"phantoms": 1}
