"""Who runs and who waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sa_jobqueue import ClaimedJob, TaskRegistry
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.turns import Turns

_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


class Line:
    """Turns for two slots, and makers of runs."""

    def __init__(self) -> None:
        self.hungry = 0
        self.turns = Turns(2, self._be_hungry)
        tasks = TaskRegistry()
        self._tasks = {
            "alone": tasks.task(name="alone")(lambda _session: None),
            "group": tasks.task(name="group", group_commit=3)(lambda _session: None),
        }

    def runs(
        self, kind: str, *ids: int, queue: str = "q", started: float = 100, attempt: int = 1, duplicate: bool = False
    ) -> list[Run]:
        times = (_NOON, _NOON, _NOON)
        jobs = [
            ClaimedJob(n, queue, kind, {}, {}, 0, attempt, 5, 1, *times, "me", None, None, duplicate=duplicate)
            for n in ids
        ]
        return [Run(job, self._tasks[kind], started=started, beaten=started) for job in jobs]

    def started(self, *runs: Run) -> list[list[int]]:
        return [[run.job.id for run in load.runs] for load in self.turns.add(runs)]

    def next(self) -> list[int] | None:
        load = self.turns.next()
        return None if load is None else [run.job.id for run in load.runs]

    def _be_hungry(self) -> None:
        self.hungry += 1


@pytest.fixture
def line() -> Line:
    return Line()


def test_as_many_start_as_there_are_slots_and_the_others_wait_in_their_order(line: Line) -> None:
    assert line.started(*line.runs("alone", 1, 2, 3, 4)) == [[1], [2]]
    assert [line.next(), line.next(), line.next()] == [[3], [4], None]
    assert line.started(*line.runs("alone", 5, 6)) == [[5]]


def test_a_job_does_not_wait_for_the_backlog_of_another_queue(line: Line) -> None:
    line.started(*line.runs("alone", 1, 2, 3, 4, 5))
    line.started(*line.runs("alone", 6, 7, queue="small"))
    assert [line.next() for _ in range(6)] == [[3], [6], [4], [7], [5], None]


def test_a_turn_takes_those_who_may_share_its_transaction_and_leaves_the_others_in_line(line: Line) -> None:
    mixed = [*line.runs("group", 1, 2), *line.runs("alone", 3), *line.runs("group", 4, 5)]
    assert line.started(*mixed) == [[1, 2, 4], [3]]
    assert line.next() == [5]


def test_a_duplicate_shares_no_transaction(line: Line) -> None:
    line.started(*line.runs("alone", 1, 2))
    line.started(*line.runs("group", 3, duplicate=True), *line.runs("group", 4, duplicate=True), *line.runs("group", 5))
    assert [line.next(), line.next(), line.next()] == [[3], [4], [5]]


def test_a_job_that_may_have_killed_a_process_shares_no_transaction(line: Line) -> None:
    line.started(*line.runs("alone", 1, 2))
    line.started(*line.runs("group", 3, attempt=2), *line.runs("group", 4, 5), *line.runs("group", 6, attempt=3))
    assert [line.next(), line.next(), line.next()] == [[3], [4, 5], [6]]


def test_hunger_is_told_once_until_it_is_heard(line: Line) -> None:
    line.turns.low_water = 1
    line.started(*line.runs("alone", 1, 2, 3, 4, 5))
    line.next()
    assert line.hungry == 0
    line.next()
    line.next()
    assert line.hungry == 1
    line.turns.heard()
    line.next()
    assert line.hungry == 2


def test_those_who_wait_too_long_are_taken_out_of_the_line(line: Line) -> None:
    line.started(*line.runs("alone", 1, 2))
    line.started(*line.runs("alone", 3, started=90), *line.runs("alone", 4))
    assert [run.job.id for run in line.turns.withdraw(claimed_before=95)] == [3]
    assert [run.job.id for run in line.turns.withdraw()] == [4]
    assert line.next() is None
