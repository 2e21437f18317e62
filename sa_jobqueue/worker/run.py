"""One job's passage through this worker: what the handler, the keeper and the main loop all see of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sa_jobqueue.tasks import Task
from sa_jobqueue.values import ClaimedJob

__all__ = ["Condemned", "Run"]


class Condemned(StrEnum):
    """Why a run is ended from outside."""

    LEASE_LOST = "lease lost"
    TIME_LIMIT = "time limit exceeded"
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
    settling: bool = False
    """True from the ack on: it is fenced itself, and a row that is missing now was deleted by this very run."""
    committed: bool = False
    condemned: Condemned | None = None
    finished: bool = False
    interrupt: Callable[[], None] | None = None
    """Stops the handler from outside, where the runtime can do that (an asyncio task)."""
    first_error: BaseException | None = None
    """What aborted the handler's transaction, whether or not the handler let it be seen."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> bool:
        """The handler's turn has come; False if the run was given up while it waited."""
        with self._lock:
            self.started, self.begun = time.monotonic(), True
            return not self.finished

    def attach(self, backend: int) -> None:
        """The handler's transaction runs in this server process from now on."""
        with self._lock:
            self.backend = backend

    def detach(self, *, committed: bool = False) -> None:
        """The server process may belong to somebody else from now on; what was committed is beyond recall."""
        with self._lock:
            self.backend = None
            self.committed = self.committed or committed

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
            self.finished = True
            return True

    @property
    def abandoned(self) -> bool:
        """True if the worker gave the run up, so that nobody waits for its handler any more."""
        return self.finished and self.condemned is not None

    def overdue(self, now: float) -> bool:
        """Whether the handler has outlived the time limit of its task."""
        return self.begun and self.task.time_limit is not None and now - self.started > self.task.time_limit
