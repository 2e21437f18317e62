"""How things are printed: JSON for programs, plain tables for people, and never a control character of somebody's."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sa_jobqueue.statements.bury import EXPIRED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "as_text",
    "cell",
    "console",
    "duration",
    "json_line",
    "print_errors",
    "print_json",
    "sheet",
    "table",
    "without_texts",
]

_PIPED_WIDTH: Final = 200
_KIND: Final = re.compile(r"[A-Za-z_][\w.]*(?=:)")
_EXACT_BELOW: Final = 10.0
_UNITS: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0))


def console(*, stderr: bool = False) -> Console:
    """A console that interprets no markup; into a pipe it writes wide lines rather than cut ones."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """One object on stdout."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False, indent=2) + "\n")


def json_line(value: Any) -> None:
    """One object on one line, at once: for streams."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def table(columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> Table:
    """Rows under ``columns``, which says ``left`` or ``right`` for each heading."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for heading, side in columns.items():
        made.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(cell, row))
    return made


def sheet(pairs: Mapping[str, Any]) -> Table:
    """One thing with the names of its columns on the left; numbers as they are, so that ids can be copied."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        made.add_row(name.replace("_", " "), cell(as_text(value) if isinstance(value, (dict, int)) else value))
    return made


def print_errors(errors: Sequence[Mapping[str, Any]]) -> None:
    """The error history of a job or dead letter, oldest first."""
    if errors:
        rows = [
            (entry["attempt"], datetime.fromisoformat(entry["at"]), entry["worker"], entry["error"]) for entry in errors
        ]
        columns = {"attempt": "right", "at": "left", "worker": "left", "error": "left"}
        console().print("")
        console().print(table(columns, rows))


def without_texts(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The history with the kind of each error only: what an error says often quotes the arguments."""
    return [{**entry, "error": _kind(entry["error"])} for entry in errors]


def _kind(text: str) -> str:
    named = _KIND.match(text)
    return EXPIRED if text == EXPIRED else named.group() if named else "…"


def as_text(value: Any) -> str:
    """A value of a JSON column on one line."""
    return json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> Text:
    """Any value as text; a control character, which could drive the terminal, is shown as its escape."""
    if isinstance(value, Text):
        return value
    if isinstance(value, datetime):
        return Text(value.astimezone().strftime("%Y-%m-%d %H:%M:%S %z"))
    text = "-" if value is None else f"{value:,}" if type(value) is int else str(value)
    return Text("".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text))


def duration(seconds: float | None) -> str:
    """A span that people read: ``4 ms``, ``1.5 s``, ``12 min``, ``3 d``."""
    if seconds is None:
        return "-"
    for unit, length in _UNITS:
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    if seconds and abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.{0 if abs(seconds) >= _EXACT_BELOW else 1}f} s" if seconds else "0"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
