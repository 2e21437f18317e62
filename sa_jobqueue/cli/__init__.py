"""The command line: parse, call, print. ``main`` is the entry point ``sa-jobqueue``."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from sa_jobqueue.cli.problems import ending_in_one_line
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

    with ending_on(signal.SIGTERM), ending_in_one_line():  # pid 1 has no default action for SIGTERM
        app(arguments, prog_name="sa-jobqueue")
