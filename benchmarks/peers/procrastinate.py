"""Procrastinate: asyncio on psycopg; a handler's row is committed by the handler's own connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import procrastinate
import psycopg_pool

from benchmarks.peers.driver import Peer, main

_CONCURRENCY = 10


class Procrastinate(Peer):
    """An app with one task; ten at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        self.pool: Any = psycopg_pool.AsyncConnectionPool(url, min_size=10, max_size=10, open=False)

        @self.app.task(name="insert")
        async def insert(n: int) -> None:
            self.started()
            async with self.pool.connection() as connection:
                await connection.execute("INSERT INTO bench_effect (n) VALUES (%s)", (n,))

        @self.app.task(name="noop")
        async def noop(n: int) -> None:  # noqa: ARG001 (a task's parameters)
            self.started()

        self.task: Any = insert

    async def install(self) -> None:
        """Apply the schema."""
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        """Open the app."""
        await self.app.open_async()

    async def enqueue(self, n: int) -> None:
        """Defer one job."""
        await self.task.defer_async(n=n)

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Defer a batch."""
        await self.task.batch_defer_async(*({"n": n} for n in numbers))

    async def serve(self, work: str) -> None:
        """Jobs are enqueued as inserts; a worker for no-ops takes them for its own."""
        if work == "noop":
            self.app.tasks["insert"] = self.app.tasks["noop"]
        await self.pool.open()
        async with self.app.open_async():
            await self.app.run_worker_async(concurrency=_CONCURRENCY, install_signal_handlers=False)


if __name__ == "__main__":
    main(Procrastinate)
