"""One worker process of the demo: ``sa-jobqueue worker`` on the demo's tasks, which ends when the demo is gone."""

from __future__ import annotations

import os
import sys
import threading

from sa_jobqueue.cli import main

__all__: list[str] = []


def _leave_with_the_demo() -> None:
    """The demo holds the other end of stdin; the end of file is the end of the demo, by SIGKILL too."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_leave_with_the_demo, daemon=True).start()
    main(["worker", "sa_jobqueue.cli.demo.business:tasks", *sys.argv[1:]])
