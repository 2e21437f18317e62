"""What one statement asks of a connection, and what its rows mean; nothing here knows a session or commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from sa_jobqueue.models import Models
from sa_jobqueue.retention import Bookmark, Pruned, Retention
from sa_jobqueue.statements import claim, lease, look, prune, settle, sweep
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob, Swept
from sa_jobqueue.wire import fetch, send

__all__ = [
    "Place",
    "Sight",
    "claim_ready",
    "extend",
    "prune_pieces",
    "release_many",
    "release_unanswered",
    "see",
    "sweep_queue",
]

_ROWS_OF_A_PAGE = 50
"""So many are to be expected, which makes the pages of a piece; a piece with more of them takes several batches."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the claim order of one queue."""

    priority: int
    visible_at: datetime | None
    job_id: int

    @classmethod
    def of(cls, job: ClaimedJob) -> Place:
        """Where the job stood before it was claimed."""
        return cls(job.priority, job.runnable_since, job.id)


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at one queue found: a row that may run, and in how many seconds the next one is due (None: none)."""

    queue: str
    ready: bool
    due_in: float | None


def see(connection: Connection, models: Models, queues: Sequence[str]) -> list[Sight]:
    """Look at all queues at once."""
    rows = send(connection, look.look(models), {"for_queues": list(queues)})
    return [Sight(row.queue, row.ready, row.due_in) for row in rows]


def claim_ready(
    connection: Connection,
    models: Models,
    queue: str,
    *,
    limit: int,
    leases: Mapping[str, float],
    worker: str | None,
    behind: Place | None = None,
) -> list[ClaimedJob]:
    """Claim queued jobs of the tasks in ``leases`` (task to seconds), those ``behind`` a place only."""
    given: dict[str, Any] = {"for_queue": queue, "worker": worker, "limit": limit}
    given |= {"tasks": list(leases), "leases": list(leases.values())}
    if behind is not None:
        given |= {
            "last_priority": behind.priority,
            "last_visible_at": behind.visible_at,
            "last_id": behind.job_id,
        }
    statement = claim.claim_ready(models, behind=behind is not None)
    return [ClaimedJob(*row) for row in fetch(connection, statement, given)]


def extend(connection: Connection, models: Models, leases: Sequence[tuple[ClaimedJob, float]]) -> list[ClaimedJob]:
    """Extend each lease to so many seconds from now; the answer is those that are lost."""
    given = {
        "ids": [job.id for job, _ in leases],
        "tokens": [job.token for job, _ in leases],
        "leases": [seconds for _, seconds in leases],
    }
    lost = {(row.id, row.token) for row in send(connection, lease.heartbeat(models), given)}
    return [job for job, _ in leases if (job.id, job.token) in lost]


def release_many(connection: Connection, models: Models, jobs: Sequence[ClaimedJob], *, log: bool) -> set[int]:
    """Give jobs back unharmed; the answer is the ids of those that were still owned."""
    given = {
        "ids": [job.id for job in jobs],
        "tokens": [job.token for job in jobs],
        "sinces": [job.runnable_since for job in jobs],
    }
    return {row.id for row in send(connection, settle.release_many(models, log=log), given)}


def sweep_queue(connection: Connection, models: Models, queue: str, limit: int, jitter: float) -> Swept:
    """Move up to ``limit`` due rows of one queue on; expired leases up to ``jitter`` seconds late."""
    rows = send(connection, sweep.sweep(models), {"for_queue": queue, "limit": limit, "jitter": jitter})
    counts: dict[str, int] = {row["kind"]: row["count"] for row in rows.mappings()}
    return Swept(
        promoted=counts.get(sweep.PROMOTED, 0),
        requeued=counts.get(Outcome.REQUEUED, 0),
        dead=counts.get(Outcome.DEAD, 0),
    )


def release_unanswered(
    connection: Connection, models: Models, queue: str, worker: str, known: Iterable[int], *, log: bool
) -> int:
    """Give back what was claimed for ``worker`` without its knowing, since an answer was lost; says how many."""
    given = {"for_queue": queue, "worker": worker, "ids": list(known)}
    rows = fetch(connection, lease.unanswered(models), given)
    if not rows:
        return 0
    ids, tokens, sinces = (list(column) for column in zip(*rows, strict=True))
    released = settle.release_many(models, log=log)
    return len(fetch(connection, released, {"ids": ids, "tokens": tokens, "sinces": sinces}))


def prune_pieces(
    connection: Connection, models: Models, retention: Retention, limit: int, behind: Pruned | None
) -> Pruned:
    """Prune the next piece of each kind that has not come to its end, by one statement each."""
    counts, bookmarks = dict[str, int](), dict[str, Bookmark]()
    for what, age in retention.ages.items():
        bookmark = _beginning(what) if behind is None else behind.bookmarks.get(what)
        if bookmark is not None:
            counts[what], rest = _prune_piece(connection, models, what, age, limit, bookmark)
            bookmarks |= {} if rest is None else {what: rest}
    return Pruned(**counts, bookmarks=bookmarks)


def _beginning(what: str) -> Bookmark:
    """Where the walk over one kind of rows begins."""
    return "(0,0)" if what in prune.BY_PAGES else datetime.min.replace(tzinfo=UTC)


def _prune_piece(
    connection: Connection, models: Models, what: str, age: timedelta, limit: int, bookmark: Bookmark
) -> tuple[int, Bookmark | None]:
    """Delete what is older than ``age`` in the next piece; says how many, and where to go on (None: at the end)."""
    given: dict[str, Any] = {"age": age, "limit": limit}
    if what in prune.BY_INDEX:
        row = send(connection, prune.BY_INDEX[what](models), given | {"since": bookmark}).one()
        return row.pruned, row.last if row.seen == limit else None
    end = _page(bookmark) + max(1, limit // _ROWS_OF_A_PAGE)
    row = send(connection, prune.BY_PAGES[what](models), given | {"behind": bookmark, "before": f"({end},0)"}).one()
    if row.seen == limit:
        return row.pruned, row.last
    return row.pruned, f"({end},0)" if end < row.pages else None


def _page(bookmark: Bookmark) -> int:
    return int(str(bookmark).strip("()").partition(",")[0])
