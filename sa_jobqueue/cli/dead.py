"""``sa-jobqueue dead``: the dead letters: list, show, redrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from sqlalchemy import Double, func, select

from sa_jobqueue.cli.database import open_session
from sa_jobqueue.cli.jobs import SECRET
from sa_jobqueue.cli.options import AsJson, JobId, JobIds, Limit, ListByDefault, Queue, Schema, ShowArgs, TaskName, Url
from sa_jobqueue.cli.problems import FAILED, MISUSED, Problem
from sa_jobqueue.cli.show import as_text, console, duration, print_errors, print_json, sheet, table, without_texts
from sa_jobqueue.models import DeadLetter
from sa_jobqueue.session import JobSession
from sa_jobqueue.states import DeathReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import RowMapping, Select

    from sa_jobqueue.values import Redriven

__all__ = ["app"]

app = typer.Typer(cls=ListByDefault, help="List, show and redrive dead letters.", no_args_is_help=False)

_COLUMNS = {"job": "right", "queue": "left", "task": "left", "reason": "left", "attempts": "right", "died": "left"}


@app.command("list")
def list_dead(
    *,
    queue: Queue = None,
    task: TaskName = None,
    reason: Annotated[DeathReason | None, typer.Option("--reason", "-r", help="Only deaths of this kind.")] = None,
    everything: Annotated[bool, typer.Option("--redriven", help="Those too that were redriven.")] = False,
    limit: Limit = 50,
    url: Url = None,
    schema: Schema = None,
    show_args: ShowArgs = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the latest death first, with their last error."""
    wanted = {"queue": queue, "task": task, "reason": reason}
    chosen = [DeadLetter.__table__.c[name] == value for name, value in wanted.items() if value is not None]
    if not everything:
        chosen.append(DeadLetter.redriven_at.is_(None))
    statement = _letters(show_args=show_args).where(*chosen).limit(limit + 1)
    with open_session(url, schema=schema) as session:
        rows = [_seen(row, show_args=show_args) for row in session.execute(statement).mappings()]
    if as_json:
        print_json({"dead": rows[:limit], "more": len(rows) > limit})
    elif rows:
        columns = _COLUMNS | {"last error": "left"} | ({"args": "left"} if show_args else {})
        console().print(table(columns, [_row(row, show_args=show_args) for row in rows[:limit]]))
        if len(rows) > limit:
            console().print(f"the latest {limit}; there are more: --limit", style="dim")
    else:
        console().print("no dead letter" if len(chosen) <= 1 else "no dead letter like that")


@app.command("show")
def show_dead(
    *,
    job_id: JobId,
    url: Url = None,
    schema: Schema = None,
    show_args: ShowArgs = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest dead letter of one job with its error history."""
    statement = _letters(show_args=show_args).where(DeadLetter.job_id == job_id).limit(1)
    with open_session(url, schema=schema) as session:
        found = session.execute(statement).mappings().first()
    if found is None:
        msg = f"no dead letter of job {job_id}; list them with `sa-jobqueue dead`"
        raise Problem(msg)
    row = _seen(found, show_args=show_args)
    if as_json:
        print_json(row)
    else:
        console().print(sheet({name: row[name] for name in row if name not in {"errors", "died_seconds_ago"}}))
        print_errors(row["errors"])


@app.command("redrive")
def redrive_dead(
    *,
    job_ids: JobIds = None,
    everything: Annotated[bool, typer.Option("--all", help="All that match, oldest death first.")] = False,
    queue: Queue = None,
    task: TaskName = None,
    limit: Limit = 1_000,
    url: Url = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Bring dead letters back to life; their attempts start again. Exit code 1 if one that was named stays dead."""
    if bool(job_ids) == everything:
        msg = "name the jobs to redrive, or give --all (with --queue or --task to narrow it)"
        raise Problem(msg, code=MISUSED)
    with open_session(url, schema=schema) as session:
        done = JobSession(session).redrive(job_ids or None, queue=queue, task=task, limit=limit)
    missing = sorted({*(job_ids or ())} - {*done.redriven, *done.skipped})
    if as_json:
        print_json({"redriven": done.redriven, "skipped": done.skipped, "not_dead": missing})
    else:
        _tell(done, missing)
    raise typer.Exit(FAILED if missing or done.skipped else 0)


def _letters(*, show_args: bool) -> Select[Any]:
    columns = [column for column in DeadLetter.__table__.c if show_args or column.name not in SECRET]
    age = func.extract("epoch", func.statement_timestamp() - DeadLetter.died_at).cast(Double)
    newest = (DeadLetter.died_at.desc(), DeadLetter.id.desc())
    return select(*columns, age.label("died_seconds_ago")).order_by(*newest)


def _seen(row: RowMapping, *, show_args: bool) -> dict[str, Any]:
    return {**row, "errors": row["errors"] if show_args else without_texts(row["errors"])}


def _row(row: Mapping[str, Any], *, show_args: bool) -> list[Any]:
    last = row["errors"][-1]["error"] if row["errors"] else ""
    first_line = last.partition("\n")[0]
    told = [str(row["job_id"]), row["queue"], row["task"], row["reason"], f"{row['attempt']}/{row['max_attempts']}"]
    told += [f"{duration(row['died_seconds_ago'])} ago", first_line]
    return [*told, *([as_text(row["args"])] if show_args else [])]


def _tell(done: Redriven, missing: list[int]) -> None:
    typer.echo(f"{len(done.redriven):,} redriven")
    if done.skipped:
        typer.echo(f"still dead, because a live job has their unique key: {', '.join(map(str, done.skipped))}")
    if missing:
        typer.echo(f"no dead letter of job {', '.join(map(str, missing))}")
