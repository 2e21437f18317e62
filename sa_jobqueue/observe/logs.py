"""Events as log records: ids, names, numbers and the type of an error, but no argument and no error text."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from sa_jobqueue.observe.events import (
    Event,
    HeartbeatFailed,
    LeaseWasLost,
    Listening,
    ListeningFailed,
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
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob

__all__ = ["log_event"]

logger = logging.getLogger("sa_jobqueue")

_QUIET = {Outcome.DONE, Outcome.DUPLICATE, Outcome.SNOOZED, Outcome.RELEASED}


_E = TypeVar("_E", bound=Event)
_writers: dict[type[Event], Callable[[Any], None]] = {}


def log_event(event: Event) -> None:
    """Write one event to the logger ``sa_jobqueue``; the worker's default subscriber."""
    _writers.get(type(event), _write_name)(event)


def _write_name(event: Event) -> None:
    logger.debug("%s: %s", event.worker, type(event).__name__)


def _writes(kind: type[_E]) -> Callable[[Callable[[_E], None]], None]:
    """Registers what writes this kind of event; a ``singledispatch`` takes longer than most of them."""

    def register(write: Callable[[_E], None]) -> None:
        _writers[kind] = write

    return register


@_writes(WorkerStarted)
def _(event: WorkerStarted) -> None:
    logger.info("%s: serving %s, %d at a time", event.worker, ", ".join(event.queues), event.concurrency)


@_writes(WorkerStopping)
def _(event: WorkerStopping) -> None:
    logger.info("%s: stopping; %d handlers still run", event.worker, event.running)


@_writes(WorkerStopped)
def _(event: WorkerStopped) -> None:
    if event.abandoned:
        logger.warning("%s: stopped; %d handlers hang and were given up", event.worker, event.abandoned)
    else:
        logger.info("%s: stopped", event.worker)


@_writes(RunStarted)
def _(event: RunStarted) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: %s begins", event.worker, _named(event.job))


@_writes(RunEnded)
def _(event: RunEnded) -> None:
    level = logging.INFO if event.outcome in _QUIET else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    why = "" if event.error is None else f" ({_where(event.error)})"
    then = "" if event.retry_in is None else f", again in {event.retry_in.total_seconds():.1f} s"
    logger.log(
        level, "%s: %s %s in %.3f s%s%s", event.worker, _named(event.job), event.outcome, event.seconds, why, then
    )


@_writes(LeaseWasLost)
def _(event: LeaseWasLost) -> None:
    logger.warning(
        "%s: lease lost on %s after %.3f s; another worker owns it, and nothing of this run was committed",
        event.worker,
        _named(event.job),
        event.seconds,
    )


@_writes(RunUnrecorded)
def _(event: RunUnrecorded) -> None:
    logger.error(
        "%s: the end of %s after %.3f s could not be recorded (%s); it runs again when its lease is over",
        event.worker,
        _named(event.job),
        event.seconds,
        _where(event.error),
    )


@_writes(SweepDone)
def _(event: SweepDone) -> None:
    swept = event.swept
    level = logging.WARNING if swept.requeued or swept.dead else logging.DEBUG
    logger.log(
        level,
        "%s: swept %s: %d promoted, %d re-queued after an expired lease, %d dead",
        event.worker,
        event.queue,
        swept.promoted,
        swept.requeued,
        swept.dead,
    )


@_writes(Outage)
def _(event: Outage) -> None:
    logger.error("%s: the database does not answer (%s); trying again", event.worker, _where(event.error))


@_writes(Recovered)
def _(event: Recovered) -> None:
    logger.info("%s: the database answers again", event.worker)


@_writes(HeartbeatFailed)
def _(event: HeartbeatFailed) -> None:
    logger.error("%s: heartbeat failed (%s); trying again", event.worker, _where(event.error))


@_writes(Listening)
def _(event: Listening) -> None:
    logger.info("%s: listening for new jobs", event.worker)


@_writes(ListeningFailed)
def _(event: ListeningFailed) -> None:
    logger.warning(
        "%s: notifications of new jobs do not arrive (%s); polling meanwhile. Behind a pooler in transaction mode, "
        "give the worker listen=URL of the server itself, or listen=False",
        event.worker,
        _where(event.error),
    )


@_writes(ProcessStarted)
def _(event: ProcessStarted) -> None:
    logger.info("%s: process %d starts", event.worker, event.pid)


@_writes(ProcessEnded)
def _(event: ProcessEnded) -> None:
    if event.restart_in is not None:
        logger.warning(
            "%s: process %d %s; another one starts in %.1f s; what it had claimed comes back after its leases",
            event.worker,
            event.pid,
            _how_it_ended(event.code),
            event.restart_in,
        )
    else:
        level = logging.WARNING if event.code else logging.INFO
        logger.log(level, "%s: process %d %s", event.worker, event.pid, _how_it_ended(event.code))


@_writes(SupervisorStopping)
def _(event: SupervisorStopping) -> None:
    logger.info("%s: stopping; %d processes still run", event.worker, event.running)


@_writes(SupervisorGaveUp)
def _(event: SupervisorGaveUp) -> None:
    logger.error("%s: no process could begin to serve, see above; exit code %d", event.worker, event.code)


def _how_it_ended(code: int) -> str:
    """``was killed by SIGSEGV``, or ``ended with code 1``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _named(job: ClaimedJob) -> str:
    return f"job {job.id} {job.task} queue {job.queue} attempt {job.attempt}/{job.max_attempts} token {job.token}"


def _where(error: BaseException) -> str:
    """Type of the error and the line that raised it; never its text, which may quote an argument."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return type(error).__name__
    return f"{type(error).__name__} at {last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
