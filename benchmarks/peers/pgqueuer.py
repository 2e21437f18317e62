"""PgQueuer: asyncio on asyncpg; jobs are acknowledged by the batch, a handler's row is committed by its own pool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

from benchmarks.peers.driver import Peer, main

_BATCH = 100


class PgQueuerPeer(Peer):
    """One entrypoint; batches of a hundred."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.queries: Any = None

    async def install(self) -> None:
        """Make the tables, the trigger and the types."""
        await self.open()
        await self.queries.install()

    async def open(self) -> None:
        """One connection."""
        self.queries = Queries(AsyncpgDriver(await asyncpg.connect(self.url)))

    async def enqueue(self, n: int) -> None:
        """Enqueue one."""
        await self.queries.enqueue("record", _payload(n))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue a list."""
        count = len(numbers)
        await self.queries.enqueue(["record"] * count, [_payload(n) for n in numbers], [0] * count)

    async def serve(self, work: str) -> None:
        """One connection for the queue, ten for the handlers."""
        pool = await asyncpg.create_pool(self.url, min_size=10, max_size=10)
        queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(self.url))

        @queue.entrypoint("record")
        async def record(job: Any) -> None:
            self.started()
            if work == "insert":
                await pool.execute("INSERT INTO bench_effect (n) VALUES ($1)", json.loads(job.payload)["n"])

        await queue.run(batch_size=_BATCH)


def _payload(n: int) -> bytes:
    return json.dumps({"n": n}).encode()


if __name__ == "__main__":
    main(PgQueuerPeer)
