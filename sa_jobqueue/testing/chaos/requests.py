"""What is asked of the fleet: a pure draw."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from sa_jobqueue.testing.chaos.work import HAS_ASYNC, QUEUE, Act
from sa_jobqueue.values import NewJob

__all__ = ["Request", "draw_request"]

_MAX_ATTEMPTS: Final = 20
"""Enough that kills and pauses alone do not make a dead letter of a healthy job."""
_POISON_ATTEMPTS: Final = 2
_NATURAL_KEYS: Final = 0.3
"""How many of the requests name their effect."""
_SAME_KEY: Final = 4
"""Successive requests of one enqueuer that share a key, if they have one."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing to enqueue; ``seconds`` is how long its handler takes, ``failures`` how many of its attempts fail."""

    tag: str
    act: Act
    task: str = "work"
    seconds: float = 0.0
    failures: int = 0
    delay: float | None = None
    max_attempts: int = _MAX_ATTEMPTS
    priority: int = 0
    key: str | None = None
    """Unique within the task, which is the scope of a dedup key; so it names the task."""

    def as_job(self) -> NewJob:
        """The job for the queue."""
        args: dict[str, Any] = {"tag": self.tag, "act": self.act.value}
        if self.task != "hang":
            args |= {"seconds": self.seconds, "failures": self.failures}
        return NewJob(
            self.task,
            args,
            queue=QUEUE,
            priority=self.priority,
            delay=self.delay,
            max_attempts=self.max_attempts,
            dedup_key=self.key,
        )


def draw_request(chance: random.Random, tag: str, lease: float) -> Request:
    """A request: most are quick, some slow, longer than the lease, delayed, failing, hanging or poison."""
    kind = chance.choices(
        ("quick", "slow", "long", "delayed", "failing", "swallowing", "poison", "hanging"), (36, 20, 15, 8, 11, 4, 4, 2)
    )[0]
    common: dict[str, Any] = {"tag": tag, "priority": chance.choice((-1, 0, 0, 0, 1))}
    common["task"] = chance.choice(("work", "work_core", *(("work_async",) if HAS_ASYNC else ())))
    request = _of_kind(chance, kind, lease, common)
    if chance.random() >= _NATURAL_KEYS:
        return request
    enqueuer, _, number = tag.rpartition("-")
    return replace(request, key=f"{request.task} {enqueuer}/{int(number) // _SAME_KEY}")


def _of_kind(chance: random.Random, kind: str, lease: float, common: dict[str, Any]) -> Request:
    brief = chance.uniform(0.0, 0.05)
    match kind:
        case "slow":
            special: dict[str, Any] = {"seconds": lease * chance.uniform(0.3, 0.9)}
        case "long":
            special = {"seconds": lease * chance.uniform(1.5, 3.0)}
        case "delayed":
            special = {"delay": chance.uniform(0.1, 3 * lease)}
        case "failing":
            special = {"act": Act.FAIL, "failures": chance.randint(1, 3)}
        case "swallowing":
            special = {"act": Act.SWALLOW, "failures": 1}
        case "poison":
            special = {"act": Act.FAIL, "failures": _MAX_ATTEMPTS, "max_attempts": _POISON_ATTEMPTS}
        case "hanging":
            special = {"act": chance.choice((Act.HANG, Act.HANG_IN_SQL)), "task": "hang"}
        case _:
            special = {}
    return Request(**{"act": Act.WORK, "seconds": brief, **common, **special})
