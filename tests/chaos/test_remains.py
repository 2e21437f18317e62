"""Which of two commits came first is read from snapshots, as the server itself would tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from sa_jobqueue.testing.chaos.remains import Snapshot

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_NUMBER = text("SELECT pg_current_xact_id()::text::bigint")
_SNAPSHOT = text("SELECT pg_current_snapshot()::text")


def test_a_snapshot_sees_the_transactions_that_had_committed_and_no_others(engine: Engine) -> None:
    with engine.connect() as early, engine.connect() as open_one, engine.connect() as late, engine.connect() as looking:
        first = _number(early)
        early.commit()
        running = _number(open_one)
        _number(late)
        late.commit()
        seen = Snapshot.parse(looking.scalar(_SNAPSHOT) or "")
        open_one.commit()
        following = _number(late)
    assert [seen.sees(number) for number in (first, running, running + 1, following)] == [True, False, True, False]


def _number(connection: Connection) -> int:
    return int(connection.scalar(_NUMBER) or 0)
