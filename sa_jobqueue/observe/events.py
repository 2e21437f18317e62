"""The events. None of them carries a job's arguments or headers, which may be secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sa_jobqueue.values import ClaimedJob, Swept

__all__ = [
    "Event",
    "HeartbeatFailed",
    "LeaseWasLost",
    "Listening",
    "ListeningFailed",
    "Outage",
    "ProcessEnded",
    "ProcessStarted",
    "Recovered",
    "RunEnded",
    "RunStarted",
    "RunUnrecorded",
    "SupervisorGaveUp",
    "SupervisorStopping",
    "SweepDone",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; ``worker`` is the name of the worker, or the supervisor, that emits it."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """The worker is about to poll ``queues``."""

    queues: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerStopping(Event):
    """A stop was asked for: nothing is claimed from now on, and ``running`` handlers are waited for."""

    running: int


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """The worker has let go of all jobs; ``abandoned`` handlers may still hang in this process."""

    abandoned: int


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A handler begins."""

    job: ClaimedJob


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """A run ended and is recorded.

    ``outcome`` is done, duplicate, retried, dead, snoozed or released; ``seconds`` is the handler's run time.
    """

    job: ClaimedJob
    outcome: str
    seconds: float
    error: BaseException | None = None
    retry_in: timedelta | None = None


@dataclass(frozen=True, slots=True)
class LeaseWasLost(Event):
    """A run's token is stale: nothing of it was committed, and nothing is recorded of it."""

    job: ClaimedJob
    seconds: float


@dataclass(frozen=True, slots=True)
class RunUnrecorded(Event):
    """How a run ended could not be written down; unless it had committed, the job runs again after its lease."""

    job: ClaimedJob
    seconds: float
    error: BaseException


@dataclass(frozen=True, slots=True)
class SweepDone(Event):
    """A sweep moved rows."""

    queue: str
    swept: Swept


@dataclass(frozen=True, slots=True)
class Outage(Event):
    """The database does not answer; the worker waits and tries again. Emitted once for each outage."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Recovered(Event):
    """The database answers again."""


@dataclass(frozen=True, slots=True)
class HeartbeatFailed(Event):
    """Leases could not be extended; the keeper tries again. Emitted once for each series of failures."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Listening(Event):
    """Notifications of new jobs arrive, for the first time or again."""


@dataclass(frozen=True, slots=True)
class ListeningFailed(Event):
    """No notifications arrive; jobs are found by polling meanwhile. Emitted once for each series of failures."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class ProcessStarted(Event):
    """A supervisor has started a worker process; it serves when its worker emits ``WorkerStarted``."""

    pid: int


@dataclass(frozen=True, slots=True)
class ProcessEnded(Event):
    """A worker process has ended: with an exit code, or with minus the number of the signal that ended it.

    Another one is started in ``restart_in`` seconds; None: the supervisor stops, or the queues are empty.
    """

    pid: int
    code: int
    restart_in: float | None


@dataclass(frozen=True, slots=True)
class SupervisorStopping(Event):
    """A stop was asked for, and passed on to ``running`` processes; a second one of these: at once."""

    running: int


@dataclass(frozen=True, slots=True)
class SupervisorGaveUp(Event):
    """No process could begin to serve; ``code`` will be the exit code. The reason is what the last one had said."""

    code: int
