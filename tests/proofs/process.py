"""Worker processes as a test sees them: lines that they say, signals that they get, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

_ROOT = Path(__file__).parents[2]
_DEFAULTS = {
    "lease": 30.0,
    "backoff": 0.05,
    "until_empty": False,
    "concurrency": 1,
    "poll_interval": 0.05,
    "sweep_interval": 0.05,
}


class WorkerProcess:
    """``tests.proofs.app`` with the settings of a Worker; ``lease`` and ``backoff`` are of its tasks, in seconds.

    ``clock`` is how many seconds its wall clock is ahead.
    """

    module = "tests.proofs.app"

    def __init__(self, url: str, *, clock: float = 0, **settings: Any) -> None:
        self.lines: list[str] = []
        bent = ["-m", "tests.clock.shift", str(clock), self.module] if clock else ["-m", self.module]
        command = [sys.executable, *bent, url, json.dumps(_DEFAULTS | settings)]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def expect(self, line: str, *, timeout: float = 60.0) -> None:
        """Wait until the process has said this line."""
        wait_until(lambda: line in self.lines, timeout=timeout, what=f"{line!r} among {self.lines}")

    def said(self, word: str) -> list[int]:
        """The job ids of all lines that begin with ``word``."""
        return [int(line.split()[1]) for line in list(self.lines) if line.split()[0] == word]

    def go_on(self) -> None:
        """Let one waiting handler go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self.ended()

    def ended(self, *, timeout: float = 60.0) -> int:
        """Wait for the end; the answer is the exit code."""
        code = self._process.wait(timeout)
        self._reader.join(timeout)
        return code

    def close(self) -> None:
        """Nothing of it is left afterwards; a process that was stopped dies of SIGKILL all the same."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.decode().rstrip())
