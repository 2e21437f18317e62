"""``sa-jobqueue jobs``: the live jobs: list, show, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from sqlalchemy import Double, func, select

from sa_jobqueue.cli.database import open_session
from sa_jobqueue.cli.options import AsJson, JobId, JobIds, Limit, ListByDefault, Queue, Schema, ShowArgs, TaskName, Url
from sa_jobqueue.cli.problems import FAILED, MISUSED, Problem
from sa_jobqueue.cli.show import as_text, console, duration, print_errors, print_json, sheet, table, without_texts
from sa_jobqueue.models import Job
from sa_jobqueue.session import JobSession
from sa_jobqueue.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Select

__all__ = ["SECRET", "app"]

SECRET = ("args", "headers")
"""Columns that are printed only when asked for."""

app = typer.Typer(cls=ListByDefault, help="List, show and cancel live jobs.", no_args_is_help=False)

_COLUMNS = {"id": "right", "queue": "left", "task": "left", "state": "left", "attempt": "right", "priority": "right"}


@app.command("list")
def list_jobs(
    *,
    queue: Queue = None,
    task: TaskName = None,
    status: Annotated[State | None, typer.Option("--status", "-s", help="Only jobs in this state.")] = None,
    limit: Limit = 50,
    url: Url = None,
    schema: Schema = None,
    show_args: ShowArgs = False,
    as_json: AsJson = False,
) -> None:
    """List live jobs, by id; a finished job has no row, a dead one is under `dead`."""
    wanted = {"queue": queue, "task": task, "status": status}
    chosen = [Job.__table__.c[name] == value for name, value in wanted.items() if value is not None]
    statement = _jobs(show_args=show_args).where(*chosen).order_by(Job.id).limit(limit + 1)
    with open_session(url, schema=schema) as session:
        rows = [dict(row) for row in session.execute(statement).mappings()]
    if as_json:
        print_json({"jobs": rows[:limit], "more": len(rows) > limit})
    elif rows:
        columns = _COLUMNS | {"when": "left", "dedup key": "left"} | ({"args": "left"} if show_args else {})
        console().print(table(columns, [_row(row, show_args=show_args) for row in rows[:limit]]))
        if len(rows) > limit:
            console().print(f"the first {limit}; there are more: --limit", style="dim")
    else:
        console().print("no live job" if not chosen else "no live job like that")


@app.command("show")
def show_job(
    *,
    job_id: JobId,
    url: Url = None,
    schema: Schema = None,
    show_args: ShowArgs = False,
    as_json: AsJson = False,
) -> None:
    """Show one live job with its error history."""
    with open_session(url, schema=schema) as session:
        found = session.execute(_jobs(Job.errors, show_args=show_args).where(Job.id == job_id)).mappings().first()
    if found is None:
        msg = f"no live job {job_id}: it is done, or cancelled, or see `sa-jobqueue dead show {job_id}`"
        raise Problem(msg, code=FAILED)
    row = {**found, "errors": found["errors"] if show_args else without_texts(found["errors"])}
    if as_json:
        print_json(row)
    else:
        console().print(
            sheet({"when": _when(row)} | {name: row[name] for name in row if name not in {"due_in_seconds", "errors"}})
        )
        print_errors(row["errors"])


@app.command("cancel")
def cancel_jobs(
    *,
    job_ids: JobIds = None,
    url: Url = None,
    schema: Schema = None,
    drop: Annotated[bool, typer.Option("--drop", help="Keep no dead letter.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take live jobs away, whatever their state; a worker that runs one loses its lease. Exit code 1 if one is gone."""
    if not job_ids:
        msg = "name the jobs to cancel, such as 17 18; list them with `sa-jobqueue jobs`"
        raise Problem(msg, code=MISUSED)
    with open_session(url, schema=schema) as session:
        done = {job_id: JobSession(session).cancel(job_id, keep=not drop) for job_id in job_ids}
    gone = [job_id for job_id, cancelled in done.items() if not cancelled]
    if as_json:
        print_json({"cancelled": [job_id for job_id in done if job_id not in gone], "not_live": gone})
    else:
        for job_id in done:
            typer.echo(f"job {job_id}: {'not live any more' if job_id in gone else 'cancelled'}")
    raise typer.Exit(FAILED if gone else 0)


def _jobs(*more: Any, show_args: bool) -> Select[Any]:
    """Live jobs without their secrets; what is due is told by the server's clock, as ``due_in_seconds``."""
    hidden = () if show_args else SECRET
    columns = [column for column in Job.__table__.c if column.name not in {*hidden, "errors"}]
    due = func.extract("epoch", Job.visible_at - func.statement_timestamp()).cast(Double)
    return select(*columns, due.label("due_in_seconds"), *more)


def _row(row: Mapping[str, Any], *, show_args: bool) -> list[Any]:
    attempt = f"{row['attempt']}/{row['max_attempts']}"
    told = [str(row["id"]), row["queue"], row["task"], row["status"], attempt, row["priority"], _when(row)]
    return [*told, row["dedup_key"], *([as_text(row["args"])] if show_args else [])]


def _when(row: Mapping[str, Any]) -> str:
    due = row["due_in_seconds"]
    if row["status"] == State.CLAIMED:
        left = f"lease ends in {duration(due)}" if due > 0 else f"lease ended {duration(-due)} ago"
        return f"{left}, {row['claimed_by'] or 'unnamed'}"
    return f"in {duration(due)}" if due > 0 else f"ready for {duration(-due)}"
