"""The leash between a supervisor and one of its worker processes: a pair of sockets, one end each.

The supervisor stops a child by a byte on the leash and not by a signal. So a SIGTERM that reaches the whole process
group counts once, and a child whose supervisor was killed learns of it on every system: its end reads EOF.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from socket import socket, socketpair

__all__ = ["SIGNALS", "Collar", "Leash", "signals_held_back"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)

_STOP, _SERVING = b"s", b"r"


class Leash:
    """The supervisor's end. ``far_end`` is what the child takes; :meth:`let_go` of it once the child has it."""

    def __init__(self) -> None:
        self.end, self.far_end = socketpair()
        self.end.settimeout(0)
        self.serving = False
        """Whether the child has said that it serves."""
        self.slack = False
        """Whether nobody holds the other end any more."""

    def fileno(self) -> int:
        """So that a selector can wait for news from the child."""
        return self.end.fileno()

    def let_go(self) -> None:
        """Only the child holds the far end now, so that its death can be read here."""
        self.far_end.close()

    def pull(self) -> None:
        """Ask the child to stop; a second time: at once. One that is gone does not mind."""
        with suppress(OSError):
            self.end.send(_STOP)

    def listen(self) -> None:
        """Take in what the child has said."""
        try:
            said = self.end.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.serving = self.serving or _SERVING in said
        self.slack = not said

    def close(self) -> None:
        """A child that lives will stop."""
        self.end.close()
        self.far_end.close()


class Collar:
    """The child's end: turns news from the leash, and signals, into calls of a worker's ``stop``.

    Each source (the leash, the signals) counts for itself, and the one that is further counts: a stop that comes both
    ways is one stop. Until there is a worker nothing is claimed, and a stop ends the process with code 0.
    """

    def __init__(self, end: socket) -> None:
        self._end = end
        self._stop: Callable[[], None] = _leave
        self._told: Counter[str] = Counter()
        self._passed_on = 0
        self._lock = threading.RLock()  # reentrant: a signal may come while another one is handled

    def put_on(self) -> None:
        """Listen; for a process that has nothing else to do with these signals, in its main thread."""
        for each in SIGNALS:
            signal.signal(each, lambda *_: self._hear("signal"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=self._listen, name="sa-jobqueue-leash", daemon=True).start()

    def stop_by(self, stop: Callable[[], None]) -> None:
        """From now on a stop is for this worker."""
        with self._lock:
            self._stop = stop

    def serving(self) -> None:
        """Tell the supervisor, if there is one."""
        with suppress(OSError):
            self._end.send(_SERVING)

    def _listen(self) -> None:
        with suppress(OSError):
            while self._end.recv(1):
                self._hear("leash")
        self._hear("leash")

    def _hear(self, source: str) -> None:
        with self._lock:
            self._told[source] += 1
            while self._passed_on < max(self._told.values()):
                self._passed_on += 1
                self._stop()


class signals_held_back:  # noqa: N801 - reads like a function
    """A child that is started inside this block gets its signals only when it can take them (:meth:`Collar.put_on`)."""

    def __enter__(self) -> None:
        self._former = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._former)


def _leave() -> None:
    os._exit(0)
