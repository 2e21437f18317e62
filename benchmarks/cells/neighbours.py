"""How long a job waits in one of nineteen small queues, whose worker serves a twentieth with a huge backlog as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import text

from benchmarks.cells.claims import faults, last_number, rows, settle_down
from benchmarks.cells.idle import WARM, percentiles, pick_up, serve
from benchmarks.cells.workers import Plan
from benchmarks.children import child
from benchmarks.rounds import Sample
from benchmarks.server import Arena

__all__ = ["SMALL", "pickups_beside"]

SMALL: Final = tuple(f"q{number:02}" for number in range(1, 20))
_HUGE: Final = "huge"
_BACKLOG: Final = text("SELECT EXISTS (SELECT FROM jobqueue_job WHERE queue = :queue AND status = 'queued')")


def pickups_beside(arena: Arena, plan: Plan, seconds: float, jobs: int) -> Sample:
    """Milliseconds from the call of enqueue to the start of the handler, in each small queue in turn.

    The worker works off what is in the huge queue all the while; where that is empty, it has nothing else to do.

    Raises:
        RuntimeError: the backlog came to its end, so that the last jobs waited for nothing.
    """
    settle_down(arena)
    before, backlog, last = rows(arena), _has_backlog(arena), last_number(arena)
    with child(serve, arena.url, plan, (*SMALL, _HUGE)) as pipe:
        waits = pick_up(arena, pipe, jobs, seconds, queues=SMALL, first=last + 1)
    if backlog and not _has_backlog(arena):
        msg = "the backlog was worked off before the last job was measured: it takes more rows"
        raise RuntimeError(msg)
    queued = replace(before, jobs=before.jobs + len(waits))
    return Sample(percentiles(waits[WARM:]), faults(queued, rows(arena), len(waits)))


def _has_backlog(arena: Arena) -> bool:
    return bool(arena.admin.scalar(_BACKLOG, {"queue": _HUGE}))
