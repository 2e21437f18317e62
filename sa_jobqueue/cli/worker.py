"""``sa-jobqueue worker``: run the handlers of an application."""

from __future__ import annotations

import logging
import signal
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue.cli.database import connect_arguments, find_url
from sa_jobqueue.cli.loading import load
from sa_jobqueue.cli.options import Url
from sa_jobqueue.cli.problems import MISUSED, Problem, ending_in_one_line
from sa_jobqueue.cli.signals import ending_on
from sa_jobqueue.tasks import TaskRegistry
from sa_jobqueue.worker import Worker
from sa_jobqueue.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import URL

__all__ = ["worker"]


def worker(
    *,
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A TaskRegistry, such as myapp.jobs:tasks, or a ready Worker.")
    ],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Serve this queue; repeatable. Default: those of the tasks."),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Handlers at the same time.  [default: 8]")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name in claimed_by; unique among live workers.")] = None,
    poll_interval: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds between polls of an empty queue.")
    ] = None,
    sweep_interval: Annotated[float | None, typer.Option(min=0.01, help="Seconds between sweeps.")] = None,
    grace: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds that running handlers get after SIGTERM.")
    ] = None,
    job_log: Annotated[bool, typer.Option("--job-log", help="Record every run in the job log.")] = False,
    natural_keys_only: Annotated[
        bool, typer.Option("--natural-keys-only", help="No dedup rows for jobs without a dedup key.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="So many worker processes, watched and replaced.")
    ] = None,
    listen: Annotated[
        bool, typer.Option("--listen/--no-listen", help="Hear of new jobs by LISTEN; polling goes on all the same.")
    ] = True,
    listen_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where to listen, if --url leads to a pooler.")
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="Exit when everything is done.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; to stderr.")] = "info",
    url: Url = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one ends it at once. Both give back what was not done."""
    _log_to_stderr(log_level)
    given = {
        "queues": queues,
        "concurrency": concurrency,
        "name": name,
        "poll_interval": poll_interval,
        "sweep_interval": sweep_interval,
        "grace": grace,
        "job_log": job_log or None,
        "natural_keys_only": natural_keys_only or None,
        "listen": listen_url or (None if listen else False),
    }
    settings = {setting: value for setting, value in given.items() if value is not None}
    made = partial(_made, target, url, settings)
    # Until the worker listens itself: nothing is claimed yet, so code 0; and pid 1 has no default action for a signal.
    with ending_on(signal.SIGTERM, code=0) as check:
        if processes is not None:
            make = partial(_made_in_child, made, log_level)
            raise typer.Exit(Supervisor(make, processes=processes, until_empty=until_empty).run())
        with made() as chosen:
            check()
            chosen.run(until_empty=until_empty)


@contextmanager
def _made_in_child(made: Callable[[], AbstractContextManager[Worker]], log_level: str) -> Iterator[Worker]:
    """A fresh interpreter has neither the logging nor the error handling of the command."""
    _log_to_stderr(log_level)
    with ending_in_one_line(), made() as chosen:
        yield chosen


@contextmanager
def _made(target: str, url: str | None, settings: dict[str, Any]) -> Iterator[Worker]:
    with ExitStack() as owned:
        yield _choose(load(target, TaskRegistry, Worker), target, url, settings, owned)


def _choose(
    found: TaskRegistry | Worker, target: str, url: str | None, settings: dict[str, Any], owned: ExitStack
) -> Worker:
    if isinstance(found, TaskRegistry):
        return _build(found, target, find_url(url), settings, owned)
    surplus = ["--queue" if name == "queues" else f"--{name.replace('_', '-')}" for name in settings]
    if surplus := surplus + (["--url"] if url else []):
        msg = f"{target} is a Worker with settings of its own; drop {', '.join(surplus)}, or name its TaskRegistry"
        raise Problem(msg, code=MISUSED)
    return found


def _build(tasks: TaskRegistry, target: str, url: URL, settings: dict[str, Any], owned: ExitStack) -> Worker:
    if not len(tasks):
        msg = f"{target} has no tasks: name the module that declares them, or import it there"
        raise Problem(msg)
    pool = {"pool_size": settings.get("concurrency", 8), "max_overflow": 0}
    options = {**pool, "pool_pre_ping": True, "hide_parameters": True, "connect_args": connect_arguments(url)}
    engine = create_engine(url, **options)
    owned.callback(engine.dispose)
    if any(task.is_async for task in tasks):
        settings = {**settings, "async_sessionmaker": _async_factory(url, options)}
    return Worker(tasks, sessionmaker(engine), **settings)


def _async_factory(url: URL, options: dict[str, Any]) -> Any:
    """Imported on demand: an application without async handlers needs no greenlet."""
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine  # noqa: PLC0415 (needs the extra async)

    try:
        return async_sessionmaker(create_async_engine(url, **options))
    except ImportError as error:
        msg = f"async handlers need greenlet: pip install 'sa-jobqueue[async]' ({error})"
        raise Problem(msg) from None


def _log_to_stderr(level: str) -> None:
    if level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        msg = f"--log-level {level!r} is none of debug, info, warning, error"
        raise Problem(msg, code=MISUSED)
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
