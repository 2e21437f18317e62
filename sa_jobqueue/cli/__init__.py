"""The command line: parse, call, print. ``main`` is the entry point ``sa-jobqueue``."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from sa_jobqueue.cli.problems import explain
from sa_jobqueue.cli.signals import ending_on

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process.

    Exit codes: 0 done; 1 it failed, or a check did; 2 it was asked wrongly; 143 ended by SIGTERM. Whatever the user
    can put right is one line on stderr; a traceback means a bug, here or in the application's module.
    """
    from sa_jobqueue.cli.app import app  # noqa: PLC0415 - SIGTERM is listened to before the imports that take long

    with ending_on(signal.SIGTERM):  # pid 1 has no default action for it
        try:
            app(arguments, prog_name="sa-jobqueue")
        except Exception as error:
            problem = explain(error)
            if problem is None:
                raise
            sys.stderr.write(f"sa-jobqueue: {problem}\n")
            sys.exit(problem.code)
