"""``sa-jobqueue prune``: deletes what is older than it is told, and nothing that it is not told."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from sqlalchemy.orm import sessionmaker

from sa_jobqueue.cli.ages import parse_age
from sa_jobqueue.cli.database import open_engine
from sa_jobqueue.cli.options import AsJson, Schema, Url
from sa_jobqueue.cli.problems import MISUSED, Problem
from sa_jobqueue.cli.show import print_json
from sa_jobqueue.errors import PruneUnfinished
from sa_jobqueue.migrations import check_schema
from sa_jobqueue.pruning import prune as prune_all
from sa_jobqueue.retention import MOST_PRUNED, PRUNE_LIMIT, Retention

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["prune"]


def prune(
    *,
    dedup_keys: Annotated[
        timedelta | None,
        typer.Option("--dedup-keys", parser=parse_age, metavar="AGE", help="Effects; a later redelivery runs again."),
    ] = None,
    job_log: Annotated[
        timedelta | None, typer.Option("--job-log", parser=parse_age, metavar="AGE", help="Runs in the job log.")
    ] = None,
    rollup: Annotated[
        timedelta | None, typer.Option("--rollup", parser=parse_age, metavar="AGE", help="Counters behind stats.")
    ] = None,
    redriven: Annotated[
        timedelta | None,
        typer.Option("--redriven-dead-letters", parser=parse_age, metavar="AGE", help="Since they were redriven."),
    ] = None,
    still_open: Annotated[
        timedelta | None,
        typer.Option("--open-dead-letters", parser=parse_age, metavar="AGE", help="Their jobs are lost with them."),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=MOST_PRUNED, help="Rows of one transaction.")
    ] = PRUNE_LIMIT,
    url: Url = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Delete what is older than AGE (90d, 12h, 30min), in batches; safe from cron, and twice at once."""
    named = {
        "dedup_keys": dedup_keys,
        "job_log": job_log,
        "rollup": rollup,
        "redriven_dead_letters": redriven,
        "open_dead_letters": still_open,
    }
    ages = {name: age for name, age in named.items() if age is not None}
    if not ages:
        msg = f"name what to prune: {', '.join(_option(name) for name in named)}, each with an age, such as 90d"
        raise Problem(msg, code=MISUSED)
    try:
        _tell(ages, _prune(Retention(**ages), batch, url, schema), as_json=as_json)
    except PruneUnfinished as unfinished:
        _tell(ages, unfinished.counts, as_json=as_json)
        raise


def _prune(retention: Retention, batch: int, url: str | None, schema: str | None) -> Mapping[str, int]:
    with open_engine(url, schema=schema) as engine:
        with engine.connect() as connection:
            check_schema(connection, schema)
        return prune_all(sessionmaker(engine), retention, limit=batch).counts


def _tell(named: Mapping[str, timedelta], counts: Mapping[str, int], *, as_json: bool) -> None:
    asked = {name: counts[name] for name in named}
    if as_json:
        print_json({"pruned": asked})
    else:
        typer.echo("pruned: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in asked.items()))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
