"""BeanQueue: SQLAlchemy ORM on psycopg2, one thread; the handler's row and the job's end are one commit, as ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bq
from bq.db.base import Base
from sqlalchemy import BigInteger, Identity
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from benchmarks.peers.driver import Peer, main

_current: dict[str, Any] = {"peer": None, "work": "insert"}
_app = bq.BeanQueue()


class _Own(DeclarativeBase):
    pass


class Effect(_Own):
    """As the harness made it."""

    __tablename__ = "bench_effect"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    n: Mapped[int]


@_app.processor(channel="default")
def record(db: Session, n: int) -> None:
    """The one task."""
    _current["peer"].started()
    if _current["work"] == "insert":
        db.add(Effect(n=n))


class BeanQueuePeer(Peer):
    """Defaults: one task at a time, one commit each."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        settings: dict[str, Any] = {"DATABASE_URL": url.replace("postgresql://", "postgresql+psycopg2://")}
        settings |= {"PROCESSOR_PACKAGES": [__name__], "METRICS_HTTP_SERVER_ENABLED": False}
        _app.config = bq.Config(**settings)
        _current["peer"] = self

    async def install(self) -> None:
        """Make the tables."""
        Base.metadata.create_all(_app.engine)

    async def open(self) -> None:
        """A session is made for each call."""

    async def enqueue(self, n: int) -> None:
        """Add one task and commit."""
        with _app.make_session() as db:
            db.add(record.run(n=n))
            db.commit()

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """It has no bulk call: add all, and commit once."""
        with _app.make_session() as db:
            db.add_all(record.run(n=n) for n in numbers)
            db.commit()

    async def serve(self, work: str) -> None:
        """Blocks; nothing else runs in this loop."""
        _current["work"] = work
        _app.process_tasks(("default",))


if __name__ == "__main__":
    main(BeanQueuePeer)
