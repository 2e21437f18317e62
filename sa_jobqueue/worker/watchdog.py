"""A bound for the worker's own short transactions: one whose answer does not come has its connection cut.

A connection can be half open: the peer, or something between, neither answers nor says that it is gone. TCP notices
that after minutes, or never if something between acknowledges what it does not forward. So a thread that does nothing
else looks at the clock, and shuts the socket down under the driver, for which that is a connection that broke.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, event

__all__ = ["Watchdog"]

_PARTS = 4
"""Looks at the clock per bound."""
_CONNECT_TIMEOUT = 2
"""The driver takes less for this."""


@dataclass(slots=True, eq=False)
class _Call:
    """A transaction on the way: when it is over its bound, and the connection that it has, if it has one by now."""

    due: float
    connection: int | None = None


class Watchdog(threading.Thread):
    """Watches the transactions of one engine of the worker's own.

    Args:
        engine: it and its pool belong to the worker alone.
        connecting: the engine whose dialect makes the pool's connections.
        within: seconds for one transaction, the wait for a connection included.
    """

    def __init__(self, engine: Engine, connecting: Engine, within: float) -> None:
        super().__init__(name="sa-jobqueue-watchdog", daemon=True)
        self._within = within
        self._closing = threading.Event()
        self._lock = threading.RLock()  # reentrant: the garbage collector may close a connection anywhere
        self._calls: set[_Call] = set()
        self._sockets: dict[int, socket.socket] = {}
        self._own = threading.local()
        self._listeners = (
            (connecting, "do_connect", self._connecting),
            (engine.pool, "connect", self._connected),
            (engine.pool, "checkout", self._taken),
            (engine.pool, "close", self._closed),
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs."""
        for target, name, listener in self._listeners:
            event.listen(target, name, listener, insert=True)  # before the dialect's own first statements
        self.start()
        try:
            yield
        finally:
            event.remove(*self._listeners[0])  # the other targets are thrown away
            self._closing.set()
            self.join()

    @contextmanager
    def bounded(self, at_hand: Connection | None = None) -> Iterator[None]:
        """One transaction, on the thread that calls this, from the wait for its connection, if none is at hand, on."""
        known = None if at_hand is None else id(at_hand.connection.dbapi_connection)
        call = self._own.call = _Call(time.monotonic() + self._within, known)
        with self._lock:
            self._calls.add(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.discard(call)
            self._own.call = None

    def run(self) -> None:
        """Look at the clock until closed."""
        while not self._closing.wait(self._within / _PARTS):
            with self._lock:
                for call in [call for call in self._calls if time.monotonic() > call.due]:
                    self._calls.discard(call)
                    self._cut(call)

    def _cut(self, call: _Call) -> None:
        """A call without a connection may be stuck in the ping of one from the pool: that is one that nobody has."""
        taken = {other.connection for other in self._calls}
        for key, held in self._sockets.items():
            if key == call.connection or (call.connection is None and key not in taken):
                _shut_down(held)

    def _connecting(self, _dialect: Any, _record: Any, _args: Any, options: dict[str, Any]) -> None:
        """A bound for the making of our own connections, unless the application has set one."""
        if getattr(self._own, "call", None) is not None and "PGCONNECT_TIMEOUT" not in os.environ:
            options.setdefault("connect_timeout", max(math.ceil(self._within / 2), _CONNECT_TIMEOUT))

    def _connected(self, connection: Any, _record: Any) -> None:
        """Hold the socket by a descriptor of our own: the driver's may be closed, and its number given to another."""
        with self._lock:
            self._sockets[id(connection)] = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        weakref.finalize(connection, self._forget, id(connection))  # one that fails at once is never said to be closed
        self._taken(connection)

    def _taken(self, connection: Any, *_: Any) -> None:
        if (call := getattr(self._own, "call", None)) is not None:
            call.connection = id(connection)

    def _closed(self, connection: Any, _record: Any) -> None:
        self._forget(id(connection))

    def _forget(self, key: int) -> None:
        with self._lock:
            if held := self._sockets.pop(key, None):
                held.close()


def _shut_down(held: socket.socket) -> None:
    try:
        held.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was faster
