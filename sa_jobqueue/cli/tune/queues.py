"""Of the queues: what waits for too long, and how much work is there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import Observation, QueueLoad, Recommendation
from sa_jobqueue.cli.tune.rounding import many

__all__ = ["USED", "busy_slots", "queues", "slots_for", "waits"]

USED: Final = 0.7
"""The share of the slots that is planned to be busy: the rest is what keeps bursts from waiting."""
_WAITING: Final = 60.0
"""Seconds that the oldest job may have waited before it is worth a word."""


def queues(seen: Observation) -> Iterator[Recommendation]:
    """Those whose oldest job has waited for more than a minute."""
    for queue in seen.queues:
        if queue.ready and queue.oldest >= _WAITING:
            yield _behind(queue, seen.counted) if queue.finished else _unserved(queue)


def busy_slots(queues: Sequence[QueueLoad], counted: float) -> float:
    """Slots that were busy, on the average."""
    return sum(queue.busy for queue in queues) / counted


def slots_for(queues: Sequence[QueueLoad], counted: float, grown: int = 0) -> int:
    """Slots for the same work again, with what waits (and ``grown`` jobs of each queue) done beside it."""
    waiting = sum((queue.ready + grown) * queue.mean for queue in queues) / counted
    return max(1, math.ceil((busy_slots(queues, counted) + waiting) / USED))


def waits(ready: int, oldest: float) -> str:
    """What may run, and since when."""
    return f"{many(ready, 'job')} may run, the oldest for {duration(oldest)}" if ready else "no job waits"


def _unserved(queue: QueueLoad) -> Recommendation:
    why = (
        f"{waits(queue.ready, queue.oldest)}; no worker has finished one. Is one there for this queue, and does it "
        f"know the task?"
    )
    figures = {"ready": queue.ready, "oldest": queue.oldest}
    return Recommendation("queue", queue.queue, "workers", "0", "at least 1", why, figures)


def _behind(queue: QueueLoad, counted: float) -> Recommendation:
    """``grown`` is a lower bound: who was enqueued and is done already is not in the database any more."""
    grown, drained = max(queue.fresh - queue.finished, 0), queue.ready / queue.finished * counted
    why = waits(queue.ready, queue.oldest)
    if grown:
        why += f"; in {duration(counted)} at least {many(grown, 'job')} more came than were done"
    why += f". At this rate they are done in {duration(drained)}, if nothing comes"
    figures = {"ready": queue.ready, "oldest": queue.oldest, "drained_in": drained, "grown_at_least": grown}
    wanted = f"at least {slots_for([queue], counted, grown)}"
    return Recommendation("queue", queue.queue, "slots", None, wanted, why, figures)
