"""What every peer's script does; run as ``python -m benchmarks.peers.NAME COMMAND URL …``.

``install``                 make the tables
``fill JOBS``               enqueue them in any number of calls
``enqueue JOBS``            one call and one commit for each; answers with a lap
``bulk JOBS``               a thousand a call; answers with a lap
``serve WORK``              be a worker whose handlers do WORK (``insert`` or ``noop``) until a line comes on the
                            standard input; answers when each of the first jobs begins, at the end with began,
                            skipped, started, cpu
``ping``                    for each line on the standard input enqueue one job; answers with the moment of the call

Moments are seconds of the monotonic clock, which all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.laps import Stopwatch

__all__ = ["BULK", "Peer", "main"]

BULK: Final = 1_000
_WARM_CALLS: Final = 50
_ANNOUNCED: Final = 200
"""Starts that a worker tells of; a drain has more jobs and is not slowed down by telling of all."""


class Peer(ABC):
    """One queue as its documentation says to use it; made for the URL of a database (``postgresql://…``)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.watch = Stopwatch()
        self._announced = 0

    @abstractmethod
    async def install(self) -> None:
        """Make the tables, whose database has none of this peer yet."""

    @abstractmethod
    async def open(self) -> None:
        """Connect as a producer."""

    @abstractmethod
    async def enqueue(self, n: int) -> None:
        """Enqueue job number ``n`` and commit."""

    @abstractmethod
    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue jobs by one call, if there is one, and commit."""

    @abstractmethod
    async def serve(self, work: str) -> None:
        """Be a worker for ever."""

    def started(self) -> None:
        """The first thing that a handler calls."""
        self.watch.started()
        if self._announced < _ANNOUNCED:
            self._announced += 1
            say({"started": time.monotonic()})


def say(what: dict[str, Any]) -> None:
    """One line to the harness; a line is written whole, whichever thread writes it."""
    os.write(1, (json.dumps(what) + "\n").encode())


def main(kind: type[Peer]) -> None:
    """Do what the command line says."""
    command, url, *more = sys.argv[1:]
    peer = kind(url)
    if command == "serve":
        _until_told(peer, more[0])
    else:
        asyncio.run(_produce(peer, command, *map(int, more)))


async def _produce(peer: Peer, command: str, jobs: int = 0) -> None:
    if command == "install":
        await peer.install()
        say({"installed": True})
        return
    await peer.open()
    if command == "ping":
        await _ping(peer)
    elif command == "fill":
        for first in range(1, jobs + 1, BULK):
            await peer.enqueue_many(range(first, min(first + BULK, jobs + 1)))
        say({"filled": jobs})
    else:
        say(await _timed(peer, jobs, 1 if command == "enqueue" else BULK))


async def _timed(peer: Peer, jobs: int, size: int) -> dict[str, float]:
    watch = Stopwatch(_WARM_CALLS if size == 1 else BULK)
    for first in range(1, jobs + 1, size):
        watch.started(size)
        if size == 1:
            await peer.enqueue(first)
        else:
            await peer.enqueue_many(range(first, first + size))
    watch.ended()
    lap = watch.lap()
    return {"jobs": lap.jobs, "began": lap.began, "ended": lap.ended, "cpu": lap.cpu}


async def _ping(peer: Peer) -> None:
    say({"ready": True})
    for line in sys.stdin:
        called = time.monotonic()
        await peer.enqueue(int(line))
        say({"called": called})


def _until_told(peer: Peer, work: str) -> None:
    """The answer comes from another thread, and the process ends at once: not every peer can be stopped in time."""

    def wait() -> None:
        sys.stdin.readline()
        peer.watch.ended()
        say(peer.watch.state())
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    say({"serving": True})
    asyncio.run(peer.serve(work))
