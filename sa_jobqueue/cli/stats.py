"""``sa-jobqueue stats``: each queue in one line."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from sa_jobqueue.cli.database import open_session
from sa_jobqueue.cli.options import AsJson, Schema, Url, Window
from sa_jobqueue.cli.show import console, duration, print_json, table
from sa_jobqueue.session import JobSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from sa_jobqueue.values import QueueStats

__all__ = ["queue_table", "stats"]

_COLUMNS = {
    "queue": "left",
    "queued": "right",
    "claimed": "right",
    "sched": "right",
    "dead": "right",
    "lag": "right",
    "jobs/s": "right",
    "p50": "right",
    "p99": "right",
    "retried": "right",
    "re-queued": "right",
    "dups": "right",
}


def stats(
    *,
    url: Url = None,
    schema: Schema = None,
    window: Window = 300.0,
    as_json: AsJson = False,
) -> None:
    """Show what waits, runs and died in each queue, and how fast it went lately."""
    with open_session(url, schema=schema) as session:
        queues = JobSession(session).stats(window=timedelta(seconds=window))
    if as_json:
        print_json({"window_seconds": window, "queues": queues})
    elif queues:
        console().print(queue_table(queues))
        console().print(f"rates and run times: the last {duration(window)}", style="dim")
    else:
        console().print("no jobs, no dead letters, and nothing ran lately")


def queue_table(queues: Sequence[QueueStats]) -> Table:
    """The queues as a table; what deserves a look is coloured."""
    return table(_COLUMNS, [_row(queue) for queue in queues])


def _row(queue: QueueStats) -> list[object]:
    return [
        queue.queue,
        queue.queued,
        queue.claimed,
        queue.scheduled,
        _marked(queue.dead, "red"),
        duration(queue.lag_seconds),
        f"{queue.jobs_per_second:,.1f}",
        duration(queue.p50_seconds),
        duration(queue.p99_seconds),
        queue.retried,
        _marked(queue.requeued, "yellow"),
        queue.duplicates,
    ]


def _marked(count: int, style: str) -> Text:
    return Text(f"{count:,}", style=style if count else "")
