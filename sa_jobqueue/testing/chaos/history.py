"""What the processes say they did: one line of JSON for each deed, in a file that only grows.

As in a Jepsen history a deed is told twice: ``invoke`` before it is begun, and then ``ok`` (it happened), ``fail`` (it
certainly did not) or ``info`` (nobody can tell, as with a COMMIT whose answer was lost). A process that is killed
leaves an ``invoke`` alone, which means the same as ``info``.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

__all__ = ["Deed", "Entry", "Journal", "Kind", "read_history"]

_SUFFIX: Final = ".jsonl"


class Kind(StrEnum):
    """How sure it is that the deed happened."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Deed(StrEnum):
    """What was done."""

    SERVE = "serve"
    ENQUEUE = "enqueue"
    CLAIM = "claim"
    RUN = "run"
    EFFECT = "effect"
    SETTLE = "settle"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. ``at`` is nanoseconds of the machine's monotonic clock, which all its processes share.

    ``tag`` names the request: each enqueue has one of its own. ``key`` is the dedup key of the effect, if any; ``note``
    says how a deed ended.
    """

    at: int
    process: str
    kind: Kind
    deed: Deed
    tag: str | None = None
    key: str | None = None
    token: int | None = None
    note: str | None = None


class Journal:
    """Writes entries for one process, from any of its threads.

    Every line is one ``write`` to a file opened for appending: when the call returns, the line survives the process.
    """

    def __init__(self, folder: Path, process: str) -> None:
        self.process = process
        self._file = os.open(folder / f"{process}{_SUFFIX}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(
        self,
        kind: Kind,
        deed: Deed,
        tag: str | None = None,
        *,
        key: str | None = None,
        token: int | None = None,
        note: str | None = None,
    ) -> None:
        """Append one entry; it is kept before this returns."""
        entry = Entry(time.monotonic_ns(), self.process, kind, deed, tag, key, token, note)
        told = {name: value for name, value in asdict(entry).items() if value is not None}
        os.write(self._file, f"{json.dumps(told)}\n".encode())


def read_history(folder: Path, process: str = "*") -> list[Entry]:
    """The entries of one or all processes in the order of their time; half a last line was not said."""
    lines = [line for file in folder.glob(f"{process}{_SUFFIX}") for line in file.read_text().splitlines(keepends=True)]
    return sorted((_entry(line) for line in lines if line.endswith("\n")), key=lambda entry: entry.at)


def _entry(line: str) -> Entry:
    told = json.loads(line)
    return Entry(**{**told, "kind": Kind(told["kind"]), "deed": Deed(told["deed"])})
