"""``sa-jobqueue chaos``: parse, run, print, judge."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sa_jobqueue.cli.demo.stage import stage
from sa_jobqueue.cli.options import AsJson
from sa_jobqueue.cli.problems import FAILED, Problem
from sa_jobqueue.cli.show import console, print_json, sheet
from sa_jobqueue.embedded import embedded_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sa_jobqueue.testing.chaos.report import Report

__all__ = ["chaos"]

_SERVER: Final = {"max_connections": "200"}


def chaos(
    *,
    seconds: Annotated[float, typer.Option(min=8.0, max=86_400.0, help="How long load and faults go on.")] = 30.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same plan of faults.")] = 0,
    workers: Annotated[int, typer.Option(min=2, max=50, help="Worker processes.")] = 3,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="Use this server, in a database of our own, and do not restart it.  [default: an embedded one]",
        ),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="Empty folder to keep what the processes wrote down and logged.")
    ] = None,
    crew: Annotated[str | None, typer.Option(help="Module to run as worker process.", hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Hurt a fleet of worker processes under load, and check that no job was lost and none took effect twice.

    Kills, pauses beyond the lease, terminated connections and server restarts. Exit code 0 only if no promise was
    broken and each kind of fault really hit.
    """
    from sa_jobqueue.testing.chaos.fleet import FleetBroken  # noqa: PLC0415 - only this command needs it
    from sa_jobqueue.testing.chaos.run import Settings, run_chaos  # noqa: PLC0415 - only this command needs it

    given: dict[str, Any] = {} if crew is None else {"crew": crew}
    settings = Settings(seed=seed, seconds=seconds, workers=workers, history=history, **given)
    told = console(stderr=as_json)
    with _server(url) as (at, restart):
        try:
            report = run_chaos(at, settings, restart, lambda line: told.print(line, style="dim"))
        except (FleetBroken, ValueError) as error:
            raise Problem(str(error)) from error
    _judge(report, as_json=as_json)


@contextmanager
def _server(url: str | None) -> Iterator[tuple[str, Callable[[], None] | None]]:
    if url is not None:
        with stage(url) as at:
            yield at.render_as_string(hide_password=False), None
        return
    with embedded_postgres(settings=_SERVER) as server:
        yield server.url, server.restart


def _judge(report: Report, *, as_json: bool) -> None:
    problems = report.problems()
    if as_json:
        print_json(report)
    else:
        console().print(sheet(asdict(report)))
        verdict = "not kept: " + "; ".join(problems) if problems else "kept: nothing lost, nothing twice, no zombie"
        console().print(verdict, style="red" if problems else "green")
    raise typer.Exit(FAILED if problems else 0)
