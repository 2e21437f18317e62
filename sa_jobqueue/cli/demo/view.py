"""How the demo is watched: live on a terminal, as plain lines elsewhere; and its figures at the end."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sa_jobqueue.cli.show import cell, duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from sa_jobqueue.cli.demo.figures import Figures
    from sa_jobqueue.cli.demo.story import Audience, Progress

__all__ = ["figure_table", "watching"]

_BAR_WIDTH: Final = 40
_LINE_INTERVAL: Final = 1.0


@contextmanager
def watching(console: Console) -> Iterator[Audience]:
    """An audience for this console, live if it is a terminal."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield _Screen(live)


class _Lines:
    """One line for each event, and one a second for the queue if it moves."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0
        self._shown: Progress | None = None

    def say(self, sentence: str) -> None:
        self._console.print(f"• {sentence}")

    def show(self, progress: Progress) -> None:
        if progress != self._shown and time.monotonic() >= self._next:
            self._shown, self._next = progress, time.monotonic() + _LINE_INTERVAL
            self._console.print(f"  {_line(progress)}")


class _Screen:
    """What happened stays above; bar and counts are drawn anew below."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def say(self, sentence: str) -> None:
        self._live.console.print(Text.assemble(("• ", "cyan"), sentence))

    def show(self, progress: Progress) -> None:
        self._live.update(_picture(progress), refresh=True)


def figure_table(figures: Figures) -> Table:
    """The figures with what each of them means."""
    made = Table.grid(padding=(0, 2))
    made.add_column(justify="right")
    made.add_column(style="bold")
    made.add_column(style="dim")
    for value, name, meaning in _rows(figures):
        made.add_row(value if isinstance(value, Text) else cell(value), name, meaning)
    return made


def _rows(figures: Figures) -> list[tuple[object, str, str]]:
    rate = figures.jobs_per_second
    return [
        (figures.deliveries, "deliveries", "stored, each in one transaction with its job"),
        (figures.enqueued, "jobs enqueued", "some senders send twice"),
        (figures.effects, "effects", "one row each; no constraint stops a second one"),
        (_alarm(figures.duplicate_effects), "duplicate effects", "must be 0"),
        (_alarm(figures.lost), "lost", "neither effect nor dead letter nor job; must be 0"),
        (figures.duplicates_suppressed, "duplicates suppressed", "acknowledged without a second effect"),
        (figures.killed, "workers killed", "SIGKILL in the middle of a job"),
        (figures.requeued, "re-queued", "came back when the lease of the killed worker ran out"),
        (figures.retries, "retries", "failed, then tried again after a backoff"),
        (figures.dead_letters, "dead letters", "gave up after the last attempt"),
        (f"{duration(figures.p50_seconds)} / {duration(figures.p99_seconds)}", "run time", "p50 / p99 of the handlers"),
        ("-" if rate is None else f"{rate:,.0f}", "jobs/s", "with the wait for the lost leases"),
        (duration(figures.seconds), "in all", "with the server's start"),
    ]


def _alarm(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "bold green")


def _picture(progress: Progress) -> RenderableType:
    bar = ProgressBar(total=max(progress.deliveries, 1), completed=progress.effects + progress.dead, width=_BAR_WIDTH)
    picture = Table.grid()
    picture.add_row(bar)
    picture.add_row(Text(_line(progress), style="dim"))
    return picture


def _line(progress: Progress) -> str:
    settled = f"{progress.effects + progress.dead:,} of {progress.deliveries:,} deliveries settled"
    live = f"queued {progress.queued:,} · claimed {progress.claimed:,} · scheduled {progress.scheduled:,}"
    return f"{settled} · {live} · dead letters {progress.dead:,}"
