"""One job's passage through this worker: what the handler, the keeper and the main loop all see of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sa_jobqueue.tasks import Task
from sa_jobqueue.values import ClaimedJob

__all__ = ["Condemned", "Load", "Run"]


class Condemned(StrEnum):
    """Why a run is ended from outside."""

    LEASE_LOST = "lease lost"
    TIME_LIMIT = "time limit exceeded"
    SNAPSHOT = "lease over, and it cannot be extended"
    STOPPED = "worker stopped"


@dataclass(slots=True, eq=False)
class Run:
    """``started`` and ``beaten`` are seconds of the monotonic clock; ``backend`` is the server process of the handler.

    A run is *finished* once: by its handler, or by the worker that abandoned it. Whoever comes second is told so.
    """

    job: ClaimedJob
    task: Task[Any, Any]
    started: float
    beaten: float
    begun: bool = False
    """False while the handler waits for its turn, as behind a blocked event loop; ``started`` is then the claim."""
    backend: int | None = None
    keeps_snapshot: bool = False
    """True in a transaction at REPEATABLE READ or above, whose ack fails if a heartbeat has changed the job's row."""
    settling: bool = False
    """True from the ack on: it is fenced itself, and a row that is missing now was deleted by this very run."""
    committing: bool = False
    """True from the moment at which the handler's COMMIT was about to be sent."""
    committed: bool = False
    condemned: Condemned | None = None
    finished: bool = False
    interrupt: Callable[[], object] | None = None
    """Stops the handler from outside, where the runtime can do that (an asyncio task)."""
    first_error: BaseException | None = None
    """What aborted the handler's transaction, whether or not the handler let it be seen."""
    load: Load | None = None
    """What it is run with; None while it waits for its turn."""
    announced: bool = False
    ended: float | None = None
    seconds: float | None = None
    _opening: float | None = None
    _driver: Any = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Reentrant: the garbage collector may give a connection back, and so detach a run, anywhere."""

    def begin(self) -> bool:
        """The handler's turn has come, perhaps anew; False if the run is not wanted any more."""
        with self._lock:
            self.started, self.begun, self.seconds = time.monotonic(), True, None
            self.settling, self.committing, self.first_error = False, False, None
            return not self.finished and self.condemned is None

    def pause(self) -> None:
        """The handler is done, and waits for others that are to be committed with it; its time limit does not run."""
        with self._lock:
            self.begun, self.seconds = False, time.monotonic() - self.started

    @property
    def run_time(self) -> float:
        """Seconds that the handler has taken."""
        return time.monotonic() - self.started if self.seconds is None else self.seconds

    def open(self, driver: Any) -> None:
        """The handler's transaction begins on this connection of the driver."""
        with self._lock:
            self._opening, self._driver = time.monotonic(), driver

    def attach(self, backend: int, *, keeps_snapshot: bool = False) -> None:
        """The handler's transaction runs in this server process from now on."""
        with self._lock:
            self.backend, self.keeps_snapshot, self._opening = backend, keeps_snapshot, None

    def detach(self, *, committed: bool = False) -> None:
        """The server process may belong to somebody else from now on; what was committed is beyond recall."""
        if not committed and self.backend is None and self._driver is None:
            return
        with self._lock:
            self.backend, self.keeps_snapshot = None, False
            self._opening = self._driver = None
            self.committed = self.committed or committed

    def cut(self, how: int, backend: int | None = None) -> None:
        """Shut the handler's socket down, so that it waits no longer for an answer; only while in ``backend``."""
        with self._lock, suppress(OSError, psycopg.Error):
            if hasattr(self._driver, "fileno") and backend in {None, self.backend}:
                with socket.fromfd(self._driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as shared:
                    shared.shutdown(how)

    def awaits_answer(self) -> bool:
        """Whether the handler has sent a statement, and waits for its answer; False where the driver cannot tell."""
        with self._lock:
            info = getattr(self._driver, "info", None)
            return getattr(info, "transaction_status", None) is TransactionStatus.ACTIVE

    def with_backend(self, act: Callable[[int], None]) -> None:
        """Call ``act`` with the server process while it cannot change hands."""
        with self._lock:
            if self.backend is not None:
                act(self.backend)

    def condemn(self, reason: Condemned) -> bool:
        """Mark the run as one to end from outside; False if it is over or was marked before."""
        with self._lock:
            if self.finished or self.committed or self.condemned:
                return False
            self.condemned = reason
            return True

    def finish(self) -> bool:
        """Take the right to say how the run ended; False if somebody else has it."""
        with self._lock:
            if self.finished:
                return False
            self.finished, self.ended = True, time.monotonic()
            return True

    @property
    def slot_seconds(self) -> float | None:
        """How long it has taken a slot, its share if others shared that; None if its turn never came."""
        if self.load is None or self.ended is None:
            return None
        return (self.ended - self.load.since) / len(self.load.runs)

    def opens_too_long(self, now: float, within: float) -> bool:
        """Whether the server has not answered for ``within`` seconds to the begin of the handler's transaction."""
        opening = self._opening
        return opening is not None and now - opening > within

    def outlives_lease(self, now: float, margin: float) -> bool:
        """Whether the lease, which a heartbeat may not extend now, is over in less than ``margin`` seconds."""
        return self.keeps_snapshot and now - self.beaten > self.task.visibility_timeout - margin

    def overdue(self, now: float) -> bool:
        """Whether the handler has outlived the time limit of its task."""
        return self.begun and self.task.time_limit is not None and now - self.started > self.task.time_limit


@dataclass(slots=True, eq=False)
class Load:
    """Runs of one task that share a turn: a slot, a thread or coroutine, and if possible a transaction.

    Its slot is left once: by the handlers that came back, or by the worker that gave them up.
    """

    runs: list[Run]
    since: float = field(default_factory=time.monotonic)
    _left: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def task(self) -> Task[Any, Any]:
        """The task of all of them."""
        return self.runs[0].task

    def leave(self) -> bool:
        """Take the right to fill the slot again; False if somebody else has it."""
        with self._lock:
            left, self._left = self._left, True
            return not left
