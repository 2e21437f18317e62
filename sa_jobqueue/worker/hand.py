"""A connection at hand, from one Core job to the next one of the same thread or asyncio task.

To give a connection back to its pool and to take it out again is a good part of a short job. While jobs follow each
other it stays out, for a moment, and only where nobody can tell (docs/decisions/0021).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from sqlalchemy import Engine, PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from sa_jobqueue.worker.watch import Overheard

__all__ = ["Hand", "is_unheard"]

_SPAN: Final = 0.1
"""Seconds out of the pool at most; somebody else may wait for a connection."""


class Hand:
    """Holds one connection, or none, while no handler has it."""

    def __init__(self) -> None:
        self._kept: PoolProxiedConnection | None = None
        self._until = 0.0

    def opened(self, *, may_keep: bool) -> None:
        """A connection has come out of its pool, from now on to be kept for a while or not at all."""
        self._until = time.monotonic() + _SPAN if may_keep else 0.0

    def keep(self, pooled: Any) -> None:
        """Keep what is about to be closed after a commit, unless something is to be undone at its return."""
        record = pooled._connection_record  # noqa: SLF001 - none if the handler has detached it from the pool
        if time.monotonic() < self._until and record is not None and not record.finalize_callback:
            self._kept = pooled._checkout_existing()  # noqa: SLF001 - one user more; the last one gives it back

    def take(self) -> PoolProxiedConnection | None:
        """What was kept."""
        kept, self._kept = self._kept, None
        return kept

    def close(self) -> None:
        """Give back what was kept; it may be filled again."""
        if (kept := self.take()) is not None:
            kept.close()

    async def aclose(self) -> None:
        """The same for a connection of an async engine."""
        if (kept := self.take()) is not None:
            await asyncio.shield(greenlet_spawn(kept.close))


def is_unheard(engine: Engine) -> bool:
    """Whether nobody but workers is told when a connection comes out of the pool of this engine, and when it goes back.

    Those who are may prepare it for each use, and clean up after it.
    """
    pool: Any = engine.pool.dispatch
    others = [each for each in pool.checkin if not isinstance(getattr(each, "__self__", None), Overheard)]
    told: Any = engine.dispatch
    return not (told.engine_connect or pool.checkout or pool.reset or others)
