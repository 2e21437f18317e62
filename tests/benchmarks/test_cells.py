"""Each cell measures what it is named for. Nothing here is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.ballast import load
from benchmarks.cells import drains, limits
from benchmarks.cells.drains import Drain, drain
from benchmarks.cells.hints import Notify, contend
from benchmarks.cells.idle import idle
from benchmarks.cells.neighbours import pickups_beside
from benchmarks.cells.paired import paired
from benchmarks.cells.workers import ON_CONNECTION, Plan
from benchmarks.growth import figures_of
from benchmarks.rounds import Sample, Series

if TYPE_CHECKING:
    from benchmarks.server import Arena

_PLAN = Plan("core", 2, ON_CONNECTION)
_CELLS = {cell.name: cell for cell in drains.cells(200, 2)}


@pytest.mark.parametrize("name", ["core", "core_session", "async_core", "core_floor", "bare_core"])
def test_each_way_to_have_a_core_handler_makes_every_effect_once(ready: Arena, name: str) -> None:
    assert _CELLS[name].measure(ready, 200).faults == ()


def test_the_bare_batches_make_every_effect_once(ready: Arena) -> None:
    how = Drain(limits.bare_batch, (300, 2, 10), seeded=False, dedup=False)
    assert drain(how, ready, 300).faults == ()


def test_each_job_is_followed_by_one_bare_transaction_on_its_thread(ready: Arena) -> None:
    sample = paired(_PLAN, ready, 200)
    assert sample.faults == ()
    assert 0 < sample.values["of_bare"] == pytest.approx(sample.values["bare_us"] / sample.values["job_us"])


@pytest.mark.parametrize("notify", [Notify.AFTER_COMMIT, Notify.IN_TRANSACTION])
def test_a_cell_with_hints_is_one_in_which_they_are_heard(ready: Arena, notify: Notify) -> None:
    sample = contend(notify, ready, 160)
    assert sample.faults == ()
    assert sample.values["hints"] > 0


def test_a_cell_without_hints_is_one_in_which_none_is_heard(ready: Arena) -> None:
    sample = contend(Notify.NEVER, ready, 160)
    assert (sample.faults, sample.values["hints"]) == ((), 0)


def test_an_idle_worker_is_measured_in_statements_of_a_poll_interval(ready: Arena) -> None:
    sample = idle(_PLAN, 0.1, ready, 0)
    assert sample.faults == ()
    assert sample.values["transactions"] > 0


def test_a_job_beside_a_backlog_is_waited_for_while_the_backlog_lasts(ready: Arena) -> None:
    load(ready, "another_queue", 20_000)
    sample = pickups_beside(ready, _PLAN, 0.0, 4)
    assert (sample.faults, sample.values["pickups"]) == ((), 4)


def test_a_backlog_that_has_gone_before_the_end_is_an_error(ready: Arena) -> None:
    load(ready, "another_queue", 1)
    with pytest.raises(RuntimeError, match="it takes more rows"):
        pickups_beside(ready, _PLAN, 0.0, 4)


def test_the_wait_beside_a_backlog_is_told_against_the_wait_without() -> None:
    waits = {"twenty_queues.pickup": 4.0, "another_queue.pickup": 6.0}
    series = Series({cell: [Sample({"p50_ms": wait})] for cell, wait in waits.items()})
    assert figures_of(series) == {
        "twenty_queues.pickup_ms.p50": 4.0,
        "another_queue.pickup_ms.p50": 6.0,
        "another_queue.pickup_of_none.p50": 1.5,
    }
