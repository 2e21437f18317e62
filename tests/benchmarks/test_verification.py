"""A benchmark that would not notice a lost or repeated job measures nothing. Nothing here is timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from benchmarks.cells import limits
from benchmarks.cells.drains import Drain, drain
from benchmarks.cells.workers import Plan, work
from benchmarks.report import answer
from benchmarks.rounds import Cell, Series, run_rounds

if TYPE_CHECKING:
    from benchmarks.server import Arena

_RAW = Drain(limits.raw, (2,))
_JOBS = 150
_ON_ROW_7 = """
    CREATE FUNCTION tamper() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {deed} END $$;
    CREATE TRIGGER tamper {when} INSERT ON bench_effect FOR EACH ROW
    WHEN (NEW.n = 7 AND pg_trigger_depth() = 0) EXECUTE FUNCTION tamper()
"""


def _measured(ready: Arena, how: Drain) -> Series:
    cell = Cell("tiny", _JOBS, lambda arena, jobs: drain(how, arena, jobs))
    return run_rounds([cell], ready, rounds=1, progress=lambda _: None)


def test_a_worker_that_ran_every_job_once_is_measured_and_without_a_fault(ready: Arena) -> None:
    series = _measured(ready, Drain(work, (Plan("orm", 2),)))
    told = answer(series, {}, {})
    assert (told["exactly_once"], told["faults"]) == (True, [])
    assert told["cells"]["tiny"].keys() >= {"jobs_per_s", "cpu_us", "wal_bytes", "commits", "dead_tuples"}


def test_the_limit_leaves_the_same_rows_as_a_worker(ready: Arena) -> None:
    assert _measured(ready, _RAW).exactly_once


def test_a_lost_effect_is_a_fault(ready: Arena) -> None:
    ready.admin.execute(text(_ON_ROW_7.format(when="BEFORE", deed="RETURN NULL;")))
    told = answer(_measured(ready, _RAW), {}, {})
    assert told["exactly_once"] is False
    assert told["faults"] == ["tiny: effects: 149, expected 150", "tiny: distinct_effects: 149, expected 150"]


def test_an_effect_that_happened_twice_is_a_fault(ready: Arena) -> None:
    twice = "INSERT INTO bench_effect (n) VALUES (NEW.n); RETURN NULL;"
    ready.admin.execute(text(_ON_ROW_7.format(when="AFTER", deed=twice)))
    told = answer(_measured(ready, _RAW), {}, {})
    assert (told["exactly_once"], told["faults"]) == (False, ["tiny: effects: 151, expected 150"])


def test_a_job_that_is_left_is_a_fault(ready: Arena) -> None:
    series = _measured(ready, Drain(limits.bare, (_JOBS, 2, "orm"), dedup=False))
    assert series.faults == ["tiny: jobs_left: 150, expected 0"]


def test_nothing_measured_is_not_exactly_once() -> None:
    assert not Series().exactly_once
