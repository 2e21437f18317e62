"""The demo's worker processes: real ones, started through the command line, so that they can really be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

from sa_jobqueue.cli.demo.business import QUEUE
from sa_jobqueue.cli.problems import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import URL

__all__ = ["Fleet"]

_CONCURRENCY: Final = 4
_PATIENCE: Final = 45.0
_CLEAN: Final = {0, 128 + signal.SIGTERM, -signal.SIGTERM}
"""Exit codes after SIGTERM: stopped, or still importing, when there was nothing to stop."""


class Fleet:
    """Worker processes by name; none of them outlives the ``with`` block, nor this process."""

    def __init__(self, url: URL, logs: Path) -> None:
        self._url, self._logs = url, logs
        self._crew: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._crew.values():
            process.kill()
            process.communicate()

    def start(self, name: str) -> None:
        """Start a worker; what it logs goes to a file. The URL, which may hold a password, travels unseen."""
        command = [sys.executable, "-m", "sa_jobqueue.cli.demo.crew", "--name", name, "--queue", QUEUE]
        command += [
            "--concurrency",
            str(_CONCURRENCY),
            "--poll-interval",
            "0.1",
            "--sweep-interval",
            "0.5",
            "--job-log",
        ]
        environment = {**os.environ, "SA_JOBQUEUE_URL": self._url.render_as_string(hide_password=False)}
        with self._log(name).open("wb") as log:
            self._crew[name] = subprocess.Popen(  # noqa: S603 - our own module and options
                command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> bool:
        """SIGKILL; True if that is what the worker died of."""
        process = self._crew.pop(name)
        process.kill()
        process.communicate()
        return process.returncode == -signal.SIGKILL

    def check(self) -> None:
        """Make sure that all are at work.

        Raises:
            Problem: one has ended by itself; with the end of its log.
        """
        for name, process in self._crew.items():
            if process.poll() is not None:
                last = self._log(name).read_text(errors="replace").strip().splitlines()[-1:]
                msg = f"worker {name} ended by itself with code {process.returncode}: {' '.join(last)}"
                raise Problem(msg)

    def dismiss(self) -> None:
        """SIGTERM to all, and wait until they have ended.

        Raises:
            Problem: one did not end in time, or failed.
        """
        for process in self._crew.values():
            process.terminate()
        for name, process in self._crew.items():
            try:
                code = process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                code = None
            if code not in _CLEAN:
                msg = f"worker {name} did not stop cleanly within {_PATIENCE:g} s of SIGTERM (exit code {code})"
                raise Problem(msg)

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"
