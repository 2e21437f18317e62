"""``sa-jobqueue enqueue``: one job from a shell."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Annotated, Any

import typer

from sa_jobqueue.cli.database import open_session
from sa_jobqueue.cli.loading import load
from sa_jobqueue.cli.options import AsJson, Schema, Url
from sa_jobqueue.cli.problems import MISUSED, Problem
from sa_jobqueue.cli.show import print_json
from sa_jobqueue.session import JobSession
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.values import NewJob

__all__ = ["enqueue"]


def enqueue(
    *,
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    args: Annotated[str, typer.Option("--args", "-a", help="Its arguments as a JSON object; - reads stdin.")] = "{}",
    registry: Annotated[
        str | None, typer.Option("--tasks", help="module:registry, to check the arguments and take its defaults from.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q")] = None,
    priority: Annotated[int | None, typer.Option(help="Smaller runs first.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds from now.")] = None,
    run_at: Annotated[
        str | None, typer.Option(help="ISO 8601 with a time zone, such as 2030-01-31T08:00+01:00.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Runs before it is a dead letter.")] = None,
    dedup_key: Annotated[str | None, typer.Option(help="Natural key of the effect.")] = None,
    unique_key: Annotated[str | None, typer.Option(help="No second live job with this key.")] = None,
    url: Url = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job."""
    given = {
        "queue": queue,
        "priority": priority,
        "delay": delay,
        "run_at": _moment(run_at),
        "max_attempts": max_attempts,
        "dedup_key": dedup_key,
        "unique_key": unique_key,
    }
    options = {name: value for name, value in given.items() if value is not None}
    tasks: TaskRegistry | None = None if registry is None else load(registry, TaskRegistry)
    new = _new_job(tasks, task, _arguments(args), options)
    models = None if tasks is None else tasks.models
    with open_session(url, schema=schema, models=models) as session:
        made = JobSession(session, models=models).enqueue_many([new])[0]
    if as_json:
        print_json({"id": made.id, "created": made.created, "status": made.status, "queue": new.queue})
    else:
        how = "enqueued" if made.created else "not enqueued: a live job has this unique key"
        typer.echo(f"job {made.id} {how} ({made.status}, queue {new.queue})")


def _new_job(tasks: TaskRegistry | None, task: str, args: dict[str, Any], options: dict[str, Any]) -> NewJob:
    if tasks is None:
        return NewJob(task, args, **options)
    return tasks[task].using(**options).new_job(**args)


def _arguments(text: str) -> dict[str, Any]:
    try:
        args = json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        msg = f"--args is not JSON: {error}"
        raise Problem(msg, code=MISUSED) from None
    if not isinstance(args, dict):
        msg = """--args must be a JSON object of named arguments, such as '{"order_id": 7}'"""
        raise Problem(msg, code=MISUSED)
    return args


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        msg = f"--run-at {text!r} is not a time; write it like 2030-01-31T08:00+01:00"
        raise Problem(msg, code=MISUSED) from None
