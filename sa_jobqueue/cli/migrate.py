"""``sa-jobqueue migrate``: the package's own way to its tables, for hosts without Alembic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sa_jobqueue.cli.database import open_engine
from sa_jobqueue.cli.options import AsJson, Schema, Url
from sa_jobqueue.cli.problems import MISUSED, Problem
from sa_jobqueue.cli.show import print_json
from sa_jobqueue.migrations import LATEST, installed_version

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["migrate"]


def migrate(
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="Revision to go to, such as sajq_0001. Default: head.")
    ] = None,
    down: Annotated[
        bool, typer.Option("--down", help="Go down to --target; base drops the tables with all jobs in them.")
    ] = False,
    stamp: Annotated[bool, typer.Option("--stamp", help="Adopt complete tables that came another way.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL instead; needs no database.")] = False,
    current: Annotated[bool, typer.Option("--current", help="Only say which version is there.")] = False,
    url: Url = None,
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Create or upgrade the queue's tables; with Alembic, let a migration of yours call sa_jobqueue.migrations."""
    from sa_jobqueue.migrations import runner  # noqa: PLC0415 - Alembic is for this command, not for the others

    _check(target, down=down, stamp=stamp, sql=sql, current=current)
    if sql:
        typer.echo(runner.script(_span(target, down=down), schema=schema, down=down))
        return
    with open_engine(url) as engine:
        before = _look(engine, schema)
        if down and target:
            runner.rollback(engine, target=target, schema=schema)
        elif stamp:
            runner.stamp(engine, schema=schema)
        elif not current:
            runner.migrate(engine, schema=schema, target=target or "head")
        after = _look(engine, schema)
    if as_json:
        print_json({"before": before, "after": after, "latest": LATEST})
    else:
        typer.echo(_sentence(before, after, current=current))


def _check(target: str | None, *, down: bool, stamp: bool, sql: bool, current: bool) -> None:
    if down and target is None:
        msg = "--down needs --target: the revision to go down to, or base, which drops the tables with all jobs in them"
        raise Problem(msg, code=MISUSED)
    if sum((down or target is not None, stamp, current)) > 1 or (sql and (stamp or current)):
        msg = "--target/--down, --stamp and --current exclude each other, and --sql goes with the first two only"
        raise Problem(msg, code=MISUSED)


def _span(target: str | None, *, down: bool) -> str:
    return f"head:{target}" if down else f"base:{target or 'head'}"


def _look(engine: Engine, schema: str | None) -> dict[str, Any]:
    from sa_jobqueue.migrations import runner  # noqa: PLC0415 - as above

    with engine.connect() as connection:
        return {
            "version": installed_version(connection, schema),
            "revision": runner.current(connection, schema=schema),
        }


def _sentence(before: dict[str, Any], after: dict[str, Any], *, current: bool) -> str:
    if not current and before != after:
        return f"schema version: {_version(before)} → {_version(after)}"
    state = f"schema version: {_version(after)}, latest {LATEST}"
    return state if current else f"{state}; nothing to do"


def _version(seen: dict[str, Any]) -> str:
    if seen["version"] is None:
        return "none"
    return f"{seen['version']} ({seen['revision'] or 'not migrated by this command'})"
