"""Options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

__all__ = [
    "AsJson",
    "JobId",
    "JobIds",
    "Limit",
    "ListByDefault",
    "Queue",
    "Schema",
    "ShowArgs",
    "TaskName",
    "Url",
    "Window",
]

_LARGEST_ID: Final = 2**63 - 1

Url = Annotated[
    str | None,
    typer.Option("--url", help="Database URL. Default: $SA_JOBQUEUE_URL, then $DATABASE_URL.", show_default=False),
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="Schema of the queue's tables, if not on the search path.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
ShowArgs = Annotated[
    bool, typer.Option("--show-args", help="Show arguments, headers and what errors say; they may hold secrets.")
]
Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Only this queue.")]
TaskName = Annotated[str | None, typer.Option("--task", "-t", help="Only jobs of this task.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000_000, help="At most so many.")]
JobId = Annotated[int, typer.Argument(metavar="JOB_ID", min=1, max=_LARGEST_ID)]
JobIds = Annotated[list[int] | None, typer.Argument(metavar="JOB_ID", min=1, max=_LARGEST_ID, show_default=False)]

Window = Annotated[
    float,
    typer.Option("--window", min=60.0, max=31_536_000.0, help="Look back so many seconds for rates and run times."),
]


class ListByDefault(TyperGroup):
    """A group of commands whose name alone, or with options, means its command ``list``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``list`` where no command is named."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)
