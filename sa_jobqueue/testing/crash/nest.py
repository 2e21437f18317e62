"""The program that worker processes are forked from: the application is imported once, each delivery costs a fork.

``python -m sa_jobqueue.testing.crash.nest FD MODULE:FUNCTION``. Each message on the socket FD is an order (JSON) with
the process's own socket attached. When the test hangs up, everything that was forked is killed, paused ones too.
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from sa_jobqueue.testing.crash.hooks import Boundaries
from sa_jobqueue.testing.crash.link import Link
from sa_jobqueue.testing.crash.points import CrashPoint

__all__ = ["main"]

_ORDER_BYTES = 65_536


def main(descriptor: str, reference: str) -> None:
    """Import, say so, and fork for every order."""
    orders = socket.socket(fileno=int(descriptor))
    drain = pkgutil.resolve_name(reference)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children: let the kernel reap them
    orders.sendall(b"ready\n")
    while True:
        order, descriptors, _flags, _address = socket.recv_fds(orders, _ORDER_BYTES, 1)
        if not order:
            os.killpg(0, signal.SIGKILL)
        if os.fork() == 0:
            orders.close()
            _live(drain, json.loads(order), Link(socket.socket(fileno=descriptors[0])))
        os.close(descriptors[0])


def _live(drain: Callable[[], object], order: dict[str, Any], link: Link) -> None:
    """Run one drain and leave by the shortest way, so that nothing inherited from the parent is cleaned up twice."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(order["environment"])
        link.tell("born", os.getpid())
        aim = CrashPoint.from_list(order["aim"]) if order["aim"] else None
        Boundaries(link, aim, fatal=order["fatal"]).watch()
        drain()
        link.tell("done")
    except BaseException:  # noqa: BLE001 - whatever an application raises is told, and ends this process
        link.tell("failed", traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
