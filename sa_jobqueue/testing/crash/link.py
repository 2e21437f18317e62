"""One line of talk between a test and a worker process: JSON lines one way, a byte that means "go on" the other."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

__all__ = ["Link"]


class Link:
    """One end of it; the other end's process is gone when ``heard`` is exhausted."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lines = end.makefile("r", encoding="utf-8")

    def tell(self, kind: str, value: Any = None) -> None:
        """Say one thing; the caller sees to it that two threads do not speak at once.

        A process that nobody listens to any more ends.
        """
        try:
            self._end.sendall(_line(kind, value))
        except BrokenPipeError:
            os._exit(1)

    def mention(self, kind: str, value: Any = None) -> None:
        """:meth:`tell`, but what the other end has no room for is not said: it may be busy with something else."""
        try:
            self._end.send(_line(kind, value), socket.MSG_DONTWAIT)  # a short line goes as a whole or not at all
        except BlockingIOError:
            return
        except BrokenPipeError:
            os._exit(1)

    def heard(self) -> Iterator[tuple[str, Any]]:
        """What the other end says. Raises TimeoutError if it says nothing for the socket's timeout."""
        try:
            for line in self._lines:
                kind, value = json.loads(line)
                yield kind, value
        except ConnectionResetError:
            return

    def wait(self) -> None:
        """Wait for leave to go on; without a test to give it, this process has no reason to live."""
        if not self._end.recv(1):
            os._exit(1)

    def go_on(self) -> None:
        """Give the leave."""
        self._end.sendall(b".")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._end.close()


def _line(kind: str, value: Any) -> bytes:
    return json.dumps([kind, value]).encode() + b"\n"
