"""The listener: a thread and a connection of its own that hear of new jobs. Without it, polling finds them too.

It proves that notifications arrive before it is relied on, and again every few seconds, by one that it sends itself.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.models import Models
from sa_jobqueue.observe import Event, Listening, ListeningFailed
from sa_jobqueue.statements import hint
from sa_jobqueue.worker.line import Line

__all__ = ["Ear", "Listener"]

_PROBE_INTERVAL = 10.0
_ANSWER_WITHIN = 2.0
"""Seconds between proofs that notifications arrive, and how long one may be on its way."""
_OWN = "?"
"""How the payloads begin that listeners send themselves."""
_RECONNECT = Backoff(base=0.25, cap=30.0, jitter=0.25)
_LAST_TURN = 2.0


@dataclass(frozen=True, slots=True)
class Ear:
    """Who is told: ``heard`` of a queue's mark, None for any queue; ``mended`` and ``failed`` of hints as such."""

    heard: Callable[[str | None], None]
    mended: Callable[[], None]
    failed: Callable[[], None]


class Listener(threading.Thread):
    """Listens until it is closed, through outages too.

    Args:
        line: leads straight to the server: a pooler in transaction mode delivers no notifications.
        models: the mapped classes.
        worker: name of the worker in events.
        ear: told of hints.
        emit: takes events; a failure is told once, until it is mended.
    """

    def __init__(self, line: Line, models: Models, worker: str, ear: Ear, emit: Callable[[Event], None]) -> None:
        super().__init__(name="sa-jobqueue-listener", daemon=True)
        self._line, self._worker, self._ear, self._emit = line, worker, ear, emit
        self._engine = line.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._channel, self._subscribe = hint.channel(models), hint.listen(models)
        self._closing = threading.Event()
        self._hang_up, self._hung_up = socket.socketpair()
        self._failures, self._told = 0, False

    def close(self) -> None:
        """End the thread, unless the database holds it up; one that waits for hints ends at once."""
        self._closing.set()
        self._hang_up.close()
        if self.ident is None:
            self._hung_up.close()
        else:
            self.join(_LAST_TURN)

    def run(self) -> None:
        """Listen, and after a failure listen again; pauses grow while nothing is heard at all."""
        with self._hung_up:
            while not self._closing.is_set():
                try:
                    self._listen()
                except (psycopg.Error, SQLAlchemyError, _Deaf) as error:
                    self._failed(error)
                    self._closing.wait(_RECONNECT.seconds(self._failures))

    def _listen(self) -> None:
        with self._line.bounded():
            connection = self._engine.connect()
        try:
            driver: Any = connection.connection.driver_connection
            with self._line.bounded():
                driver.execute(self._subscribe)
            while not self._closing.is_set():
                with self._line.bounded():
                    self._prove(driver)
                self._hear(driver, until=time.monotonic() + _PROBE_INTERVAL)
        finally:
            connection.invalidate()  # the pool must not hand out a connection that listens
            connection.close()

    def _prove(self, driver: Any) -> None:
        """Send ourselves a notification, and wait for it."""
        word = f"{_OWN}{secrets.token_hex(8)}"
        driver.execute(hint.notify(self._channel, word))
        deadline = time.monotonic() + _ANSWER_WITHIN
        while not self._pass_on(self._notices(driver, deadline), word):
            if time.monotonic() > deadline:
                raise _Deaf
            if self._closing.is_set():
                return
        self._recovered()

    def _hear(self, driver: Any, *, until: float) -> None:
        while time.monotonic() < until and not self._closing.is_set():
            self._pass_on(self._notices(driver, until))

    def _pass_on(self, payloads: list[str], word: str | None = None) -> bool:
        """Tell of hints; whether our own ``word`` was among them."""
        for payload in payloads:
            if not payload.startswith(_OWN):
                self._ear.heard(payload)
        return word in payloads

    def _notices(self, driver: Any, until: float) -> list[str]:
        """The payloads that have come, or those that come first; none when the time or the thread is over."""
        came = _now(driver)
        if not came and not self._closing.is_set():
            with DefaultSelector() as selector:
                for readable in (driver.fileno(), self._hung_up):
                    selector.register(readable, EVENT_READ)
                selector.select(max(0.0, until - time.monotonic()))
            came = _now(driver)
        return came

    def _recovered(self) -> None:
        self._ear.mended()
        if self._failures or not self._told:
            self._ear.heard(None)  # of what was committed while nobody listened
            self._emit(Listening(self._worker))
        self._failures, self._told = 0, True

    def _failed(self, error: Exception) -> None:
        self._ear.failed()
        self._failures += 1
        if self._failures == 1:
            self._emit(ListeningFailed(self._worker, error))


def _now(driver: Any) -> list[str]:
    return [notice.payload for notice in driver.notifies(timeout=0, stop_after=1)]


class _Deaf(Exception):
    """Notifications do not arrive; behind a pooler in transaction mode they never do."""
