"""``sa-jobqueue top``: the queues, live."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sa_jobqueue.cli.database import open_engine, open_session
from sa_jobqueue.cli.options import AsJson, Schema, Url, Window
from sa_jobqueue.cli.problems import explain
from sa_jobqueue.cli.show import console, duration, json_line
from sa_jobqueue.cli.stats import queue_table
from sa_jobqueue.session import JobSession

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from sqlalchemy import Engine

    from sa_jobqueue.values import QueueStats

__all__ = ["top"]


def top(
    *,
    url: Url = None,
    schema: Schema = None,
    window: Window = 60.0,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.1, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many looks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Watch the queues until Ctrl-C; with --json, one line of JSON a look. An outage of the server is waited out."""
    with open_session(url, schema=schema):
        pass  # tables that cannot be served are an error now, an unreachable server later is not
    with open_engine(url, schema=schema) as engine:
        looks = _looks(engine, timedelta(seconds=window), interval, count)
        if as_json:
            for look in looks:
                json_line({"at": datetime.now().astimezone(), **_as_object(look)})
        else:
            _watch(looks, window)


def _looks(
    engine: Engine, window: timedelta, interval: float, count: int | None
) -> Iterator[list[QueueStats] | DBAPIError]:
    seen, pause = 0, threading.Event()
    while count is None or seen < count:
        if seen:
            pause.wait(interval)
        seen += 1
        try:
            with Session(engine) as session:
                look: list[QueueStats] | DBAPIError = JobSession(session).stats(window=window)
        except DBAPIError as error:
            look = error
        yield look


def _as_object(look: list[QueueStats] | DBAPIError) -> dict[str, object]:
    return {"error": _what(look)} if isinstance(look, DBAPIError) else {"queues": look}


def _watch(looks: Iterator[list[QueueStats] | DBAPIError], window: float) -> None:
    screen = console()
    with Live(console=screen, auto_refresh=False) if screen.is_terminal else nullcontext() as live:
        for picture in _pictures(looks, window):
            if live is None:
                screen.print(picture)
            else:
                live.update(picture, refresh=True)


def _pictures(looks: Iterator[list[QueueStats] | DBAPIError], window: float) -> Iterator[RenderableType]:
    """Each look as a table; while the server is away, the last one stays."""
    shown: RenderableType = Text("no jobs yet", style="dim")
    for look in looks:
        state = Text(f"rates and run times: the last {duration(window)} · Ctrl-C ends", style="dim")
        if isinstance(look, DBAPIError):
            state = Text(f"{_what(look)}; trying again", style="red")
        elif look:
            shown = queue_table(look)
        yield Group(shown, state)


def _what(error: DBAPIError) -> str:
    problem = explain(error)
    if problem is None:
        raise error
    return str(problem)
