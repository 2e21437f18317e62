"""The commands under one name."""

from __future__ import annotations

import typer

from sa_jobqueue.cli import chaos, dead, doctor, enqueue, jobs, migrate, prune, stats, top, worker
from sa_jobqueue.cli.demo.command import demo
from sa_jobqueue.cli.tune.command import tune

__all__ = ["app"]

app = typer.Typer(
    help="A job queue for PostgreSQL inside your SQLAlchemy session.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(worker.worker)
app.command()(enqueue.enqueue)
app.command()(stats.stats)
app.command()(top.top)
app.add_typer(jobs.app, name="jobs")
app.add_typer(dead.app, name="dead")
app.command()(prune.prune)
app.command()(chaos.chaos)
app.command()(tune)
app.command()(doctor.doctor)
app.command()(migrate.migrate)
