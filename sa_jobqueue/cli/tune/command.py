"""``sa-jobqueue tune``: look, judge, print; nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from sa_jobqueue.cli.database import open_engine
from sa_jobqueue.cli.loading import load
from sa_jobqueue.cli.options import AsJson, Schema, Url, Window
from sa_jobqueue.cli.show import cell, console, duration, print_json, table
from sa_jobqueue.cli.tune.advice import recommend, too_few
from sa_jobqueue.cli.tune.observed import ENOUGH, Fleet, Observation, Recommendation, Settings
from sa_jobqueue.cli.tune.reading import observe
from sa_jobqueue.migrations import check_schema
from sa_jobqueue.tasks import TaskRegistry

__all__ = ["tune"]

_COLUMNS = {"of": "left", "setting": "left", "now": "left", "recommended": "left", "why": "left"}


def tune(
    *,
    registry: Annotated[
        str | None, typer.Option("--tasks", help="module:registry, to know the settings that its tasks have now.")
    ] = None,
    window: Window = 3600.0,
    processes: Annotated[
        int | None, typer.Option("--processes", "-p", min=1, help="Worker processes there are.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Handlers at the same time in each of them.")
    ] = None,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, help="Cores for the workers. Default: those of this machine.")
    ] = None,
    url: Url = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Recommend settings from what the queue does, with the reason and its figures. Changes nothing."""
    declared = {} if registry is None else _declared(load(registry, TaskRegistry))
    fleet = Fleet(cores or os.cpu_count() or 1, processes, concurrency)
    with open_engine(url, schema=schema) as engine, engine.connect() as connection:
        connection.execution_options(postgresql_readonly=True)
        with connection.begin():
            check_schema(connection, schema)
        seen = observe(connection, schema, timedelta(seconds=window), fleet, declared)
    if as_json:
        print_json(_as_object(seen))
    else:
        _print(seen)


def _declared(tasks: TaskRegistry) -> dict[str, Settings]:
    return {
        task.name: Settings(
            declared=True,
            visibility_timeout=task.visibility_timeout,
            max_attempts=task.options.max_attempts,
            time_limit=task.time_limit,
            backoff=task.backoff,
            group_commit=task.group_commit,
            batch=task.batch,
        )
        for task in tasks
    }


def _as_object(seen: Observation) -> dict[str, Any]:
    return {
        "at": seen.at,
        "window_seconds": seen.window,
        "counted_seconds": seen.counted,
        "recommendations": [{**asdict(each), "change": each.change} for each in recommend(seen)],
        "too_few_runs": [{"task": each.task, "runs": each.runs, "needed": ENOUGH} for each in too_few(seen)],
        "unseen": seen.unseen,
    }


def _print(seen: Observation) -> None:
    """The table, then what is not in it and why not."""
    recommended = recommend(seen)
    if recommended:
        console().print(table(_COLUMNS, [_row(each) for each in recommended]))
    for line in _remarks(seen, recommended):
        console().print(cell(line), style="dim")


def _remarks(seen: Observation, recommended: Sequence[Recommendation]) -> list[str]:
    span = f"the last {duration(seen.window)}"
    if seen.counted < seen.window / 2:
        span += f", of which the first {duration(seen.window - seen.counted)} saw nothing"
    return [
        *([] if recommended else ["nothing to recommend"]),
        *(f"{each.task}: {each.runs:,} runs, too few to judge ({ENOUGH})" for each in too_few(seen)),
        *([] if seen.tasks else ["no worker has counted a run; services that claim() themselves are not counted"]),
        *(f"not seen: {each.what} ({each.why})" for each in seen.unseen),
        f"from run times and counts of {span}; choose a --window that holds your busy hour",
    ]


def _row(each: Recommendation) -> list[object]:
    style = "yellow" if each.change else "green"
    of = f"{each.scope} {each.name}".strip()
    return [of, each.setting, each.now, Text(cell(each.recommended).plain, style=style), each.why]
