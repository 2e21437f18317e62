"""Oban: asyncio on psycopg; a handler's row is committed by the handler's own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psycopg_pool
from oban import Oban, worker
from oban.schema import install

from benchmarks.peers.driver import Peer, main

_LIMIT = 50


_current: dict[str, Any] = {}


@worker(queue="default")
class Record:
    """The one worker class."""

    async def process(self, job: Any) -> None:
        """Make the effect, if the work is to make one."""
        _current["peer"].started()
        if _current["pool"] is not None:
            async with _current["pool"].connection() as connection:
                await connection.execute("INSERT INTO bench_effect (n) VALUES (%s)", (job.args["n"],))


class ObanPeer(Peer):
    """One queue; fifty at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.record: Any = Record
        self.oban: Any = None

    async def install(self) -> None:
        """Make the tables."""
        await install(await Oban.create_pool(self.url))

    async def open(self) -> None:
        """A client without queues."""
        self.oban = Oban(pool=await Oban.create_pool(self.url))
        await self.oban.start()

    async def enqueue(self, n: int) -> None:
        """Enqueue one."""
        await self.oban.enqueue(self.record.new({"n": n}))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue a list."""
        await self.oban.enqueue_many([self.record.new({"n": n}) for n in numbers])

    async def serve(self, work: str) -> None:
        """One pool for the queue, another for the handlers."""
        pool = None
        if work == "insert":
            pool = psycopg_pool.AsyncConnectionPool(self.url, min_size=10, max_size=10, open=False)
            await pool.open()
        _current.update(peer=self, pool=pool)
        queues: Any = {"default": _LIMIT}
        async with Oban(pool=await Oban.create_pool(self.url), queues=queues):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ObanPeer)
