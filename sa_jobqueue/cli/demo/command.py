"""``sa-jobqueue demo``: parse, play, count, judge."""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue.cli.database import connect_arguments
from sa_jobqueue.cli.demo import figures as counting
from sa_jobqueue.cli.demo.fleet import Fleet
from sa_jobqueue.cli.demo.stage import stage
from sa_jobqueue.cli.demo.story import Audience, Course
from sa_jobqueue.cli.demo.view import figure_table, watching
from sa_jobqueue.cli.demo.webhooks import SHIPPED, Webhook, read
from sa_jobqueue.cli.options import AsJson
from sa_jobqueue.cli.problems import FAILED
from sa_jobqueue.cli.show import console, print_json
from sa_jobqueue.cli.signals import ending_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import URL

__all__ = ["demo", "judge"]


def demo(
    *,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input", help="Webhooks as JSON Lines with delivery, event, action, payload.  [default: 60 of ours]"
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", help="Use this server, in a database of the demo's own.  [default: an embedded server]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a small business on the queue, kill one of its workers, and count what came of it.

    Exit code 0 only if every delivery had exactly one effect or is a dead letter.
    """
    webhooks = read(input_file or SHIPPED)
    with watching(console(stderr=as_json)) as audience:
        figures = _perform(webhooks, url, audience)
    judge(figures, as_json=as_json)


def judge(figures: counting.Figures, *, as_json: bool) -> None:
    """Print the figures; raises typer.Exit with code 1 if the promise was not kept."""
    problems = figures.problems()
    if as_json:
        print_json(figures)
    else:
        console().print(figure_table(figures))
        verdict = "kept: every delivery had exactly one effect or is a dead letter"
        console().print(
            "not kept: " + "; ".join(problems) if problems else verdict, style="red" if problems else "green"
        )
    raise typer.Exit(FAILED if problems else 0)


def _perform(webhooks: Sequence[Webhook], url: str | None, audience: Audience) -> counting.Figures:
    started = time.monotonic()
    with ExitStack() as stack:
        at = stack.enter_context(stage(url))
        engine = stack.enter_context(_engine(at))
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sa-jobqueue-demo-")))
        fleet = stack.enter_context(Fleet(at, logs))
        check = stack.enter_context(ending_on(signal.SIGTERM, signal.SIGINT, at_once=False))
        audience.say(f"PostgreSQL {_version(engine)} at {at.host}:{at.port or 5432}, database {at.database}")
        killed = Course(engine, fleet, audience, check).play(webhooks)
        with Session(engine) as session:
            return counting.count(session, killed=killed, seconds=time.monotonic() - started)


@contextmanager
def _engine(url: URL) -> Iterator[Engine]:
    engine = create_engine(url, connect_args=connect_arguments(url), hide_parameters=True)
    try:
        yield engine
    finally:
        engine.dispose()


def _version(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(text("SHOW server_version"))).partition(" ")[0]
