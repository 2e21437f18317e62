"""The harness's side of a peer's process: lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from benchmarks.children import ChildFailed
from benchmarks.peers.environments import ROOT

__all__ = ["Talk", "talking"]


class Talk:
    """One running script."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def hear(self) -> dict[str, Any]:
        """The next line.

        Raises:
            ChildFailed: the script has ended; with the end of what it wrote to the standard error.
        """
        line = cast("IO[str]", self._process.stdout).readline()
        if not line:
            raise ChildFailed(self._log.read_text(encoding="utf-8", errors="replace")[-2000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def say(self, line: str = "") -> None:
        """A line to the script's standard input."""
        stream = cast("IO[str]", self._process.stdin)
        stream.write(line + "\n")
        stream.flush()

    def running(self) -> bool:
        """True unless it has ended by itself."""
        return self._process.poll() is None


@contextmanager
def talking(python: Path, peer: str, folder: Path, *words: str) -> Iterator[Talk]:
    """Run a peer's script with a command; it is killed at the end of the block if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    log, pipe = folder / f"{peer}.log", subprocess.PIPE
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 (our own script)
            [str(python), "-m", f"benchmarks.peers.{peer}", *words],
            stdin=pipe,
            stdout=pipe,
            stderr=errors,
            text=True,
            env=environment,
            cwd=ROOT,
        )
    try:
        yield Talk(process, log)
    finally:
        process.kill()
        process.communicate()
