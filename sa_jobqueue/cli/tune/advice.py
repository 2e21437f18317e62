"""From one observation to all that is recommended; pure."""

from __future__ import annotations

from collections.abc import Iterator

from sa_jobqueue.cli.tune.fleet import fleet
from sa_jobqueue.cli.tune.leases import leases
from sa_jobqueue.cli.tune.observed import ENOUGH, Deaths, Observation, Recommendation, Settings, TaskRuns
from sa_jobqueue.cli.tune.queues import queues
from sa_jobqueue.cli.tune.retries import retries
from sa_jobqueue.cli.tune.server import server
from sa_jobqueue.cli.tune.tables import tables
from sa_jobqueue.cli.tune.together import together

__all__ = ["recommend", "too_few"]


def recommend(seen: Observation) -> list[Recommendation]:
    """Tasks, workers and queues, server, tables; changes before what is right as it is."""
    return sorted(_all(seen), key=lambda each: not each.change)


def too_few(seen: Observation) -> list[TaskRuns]:
    """The tasks about which nothing is said, since they hardly ran."""
    return [task for task in seen.tasks if task.runs < ENOUGH]


def _all(seen: Observation) -> Iterator[Recommendation]:
    for task in seen.tasks:
        if task.runs >= ENOUGH:
            yield from _of_task(task, seen)
    yield from fleet(seen)
    yield from queues(seen)
    yield from server(seen)
    yield from tables(seen)


def _of_task(task: TaskRuns, seen: Observation) -> Iterator[Recommendation]:
    settings = seen.settings.get(task.task, Settings())
    yield from leases(task, settings)
    yield from together(task, settings)
    yield from retries(task, settings, seen.deaths.get(task.task, Deaths()))
