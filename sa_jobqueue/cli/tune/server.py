"""Of the server: what a commit is worth there, and how often autovacuum comes by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import Figures, Observation, Recommendation, Server

__all__ = ["server"]

_DEAD_ROWS: Final = 2
"""That one job leaves behind: the queued and the claimed version of its row."""
_MANY: Final = 50_000
_NAP: Final = 10


def server(seen: Observation) -> Iterator[Recommendation]:
    """Settings of the server; nothing if it showed none."""
    if seen.server is not None:
        yield from _durability(seen.server)
        yield from _naptime(seen.server, sum(queue.finished for queue in seen.queues) / seen.counted)


def _durability(now: Server) -> Iterator[Recommendation]:
    if now.fsync != "on":
        why = "without it a crash of the machine can corrupt the database, jobs and effects alike"
        yield _of("fsync", now.fsync, "on", why, {})
    if now.synchronous_commit == "off":
        why = (
            "a crash of the server forgets the last commits: jobs that somebody believes to be enqueued, and claims, "
            "so that a fencing token which was handed out comes a second time"
        )
        yield _of("synchronous_commit", "off", "on", why, {})
    elif now.fsync_seconds is not None:
        spent = f"{now.fsync_seconds * 1000:.2f} ms"
        why = f"right as it is. A commit waits about {spent} for the disk; jobs that share a commit share that too"
        figures = {"fsync": now.fsync_seconds}
        yield _of("synchronous_commit", now.synchronous_commit, now.synchronous_commit, why, figures)


def _naptime(now: Server, rate: float) -> Iterator[Recommendation]:
    dead = _DEAD_ROWS * rate * now.naptime
    if dead >= _MANY:
        why = (
            f"{rate:,.0f} jobs a second leave {dead:,.0f} dead rows between two visits of autovacuum, which comes to "
            f"a database every {duration(now.naptime)}"
        )
        wanted = f"{min(_NAP, now.naptime):.0f} s"
        yield _of("autovacuum_naptime", duration(now.naptime), wanted, why, {"dead_rows_between": dead})


def _of(setting: str, now: str, wanted: str, why: str, figures: Figures) -> Recommendation:
    return Recommendation("server", "", setting, now, wanted, why, figures)
