"""One delivery, killed at every boundary: each death has a queue of its own, and one rescuer comes for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sa_jobqueue.testing.crash.points import Actor, CrashPoint, distinct

if TYPE_CHECKING:
    from sa_jobqueue.testing.crash.processes import WorkerProcess
    from tests.crash.ground import Fate, Ground

WORK = "tests.crash.app:work"
_AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Delivery:
    """How one job is delivered; ``run`` is what the process does that is to die."""

    run: str
    task: str
    last: bool = False
    keyed: bool = False
    rescue: str = WORK

    def __str__(self) -> str:
        options = ("last" if self.last else "", "keyed" if self.keyed else "")
        return "-".join(filter(None, (self.run.rpartition(":")[2], self.task, *options)))

    @property
    def leased(self) -> bool:
        """Whether the claim is a transaction of its own, and so one statement that commits by itself."""
        return self.run.startswith("tests.crash.app:")

    @property
    def beats(self) -> bool:
        """Whether the handler lasts so long that its lease is extended."""
        return self.task == "outlast_a_beat"

    def enqueue(self, ground: Ground, queue: str) -> int:
        return ground.enqueue(queue, self.task, max_attempts=1 if self.last else 5, keyed=self.keyed)

    def rehearse(self, ground: Ground) -> list[CrashPoint]:
        """The boundaries of a delivery that nothing disturbs; the keeper's only where it is sure to beat."""
        self.enqueue(ground, "rehearsal")
        passed = ground.start(self.run, ["rehearsal"]).finish()
        return [point for point in distinct(passed) if point.who is not Actor.KEEPER or self.beats]


@dataclass(frozen=True, slots=True)
class Death:
    """A process that died at ``point``: what had become of its job, and what became of it in the end."""

    point: CrashPoint
    passed: list[CrashPoint]
    before: Fate
    after: Fate

    def had(self, when: str, what: str) -> bool:
        """Whether the process had passed such a boundary before it died."""
        return any(point.when == when and point.what == what for point in self.passed)


def kill_everywhere(ground: Ground, delivery: Delivery) -> list[Death]:
    """Deaths at all boundaries, after another worker has come."""
    points = delivery.rehearse(ground)
    ids = {f"death-{at}": delivery.enqueue(ground, f"death-{at}") for at in range(len(points))}
    victims = _kill(ground, delivery, list(zip(ids, points, strict=True)))
    ground.queue.wait_until_gone([backend for victim in victims for backend in victim.backends])
    before = ground.fates(ids.values())
    ground.queue.expire_leases()
    ground.start(delivery.rescue, ids).finish()
    after = ground.fates(ids.values())
    return [
        Death(point, victim.passed, *fates)
        for point, victim, *fates in zip(points, victims, before, after, strict=True)
    ]


def _kill(ground: Ground, delivery: Delivery, aims: list[tuple[str, CrashPoint]]) -> list[WorkerProcess]:
    victims: list[WorkerProcess] = []
    for start in range(0, len(aims), _AT_ONCE):
        some = aims[start : start + _AT_ONCE]
        victims += [ground.start(delivery.run, [queue], aim, fatal=True) for queue, aim in some]
        for victim, (_queue, aim) in zip(victims[start:], some, strict=True):
            assert victim.dies(), f"{aim} was not passed again; the last were {victim.passed[-9:]}"
    return victims
