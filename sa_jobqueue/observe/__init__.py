"""The one instrumentation seam: the queue emits frozen events, and whoever wants to know subscribes."""

from sa_jobqueue.observe.events import (
    Event,
    HeartbeatFailed,
    LeaseWasLost,
    Outage,
    ProcessEnded,
    ProcessStarted,
    Recovered,
    RunEnded,
    RunStarted,
    RunUnrecorded,
    SupervisorGaveUp,
    SupervisorStopping,
    SweepDone,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from sa_jobqueue.observe.logs import log_event

__all__ = [
    "Event",
    "HeartbeatFailed",
    "LeaseWasLost",
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
    "log_event",
]
