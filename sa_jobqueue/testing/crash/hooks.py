"""Inside the process that is to die: see each boundary pass, and stop at the one that is aimed at."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal

from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from sa_jobqueue.testing.crash.link import Link
from sa_jobqueue.testing.crash.points import CrashPoint, Numbering, actor_of, name_of

__all__ = ["Boundaries"]


class Boundaries:
    """Tells the parent of every boundary. At ``aim`` the process kills itself, or the thread waits for the parent.

    A process that may go on from there is one of many: its parent hears it when it has time, and it must not wait.
    """

    def __init__(self, link: Link, aim: CrashPoint | None, *, fatal: bool) -> None:
        self._link, self._aim, self._fatal = link, aim, fatal
        self._numbering = Numbering()
        self._tell = link.tell
        self._lock = threading.Lock()
        self._last: dict[int, str] = {}

    def watch(self) -> None:
        """See all engines of this process, sync and async, from now on; there is no way back."""
        event.listen(Engine, "connect", self._on_connect)
        event.listen(Engine, "before_cursor_execute", self._before_statement)
        event.listen(Engine, "after_cursor_execute", self._after_statement)
        for name, word in (("do_commit", "COMMIT"), ("do_rollback", "ROLLBACK")):
            self._wrap(name, word)

    def _pass(self, when: Literal["before", "after"], what: str) -> None:
        with self._lock:
            point = self._numbering.point(actor_of(threading.current_thread().name), when, what)
            self._tell("passed", point.as_list())
            if point == self._aim:
                self._link.tell("reached")
                if self._fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
        if point == self._aim:
            self._link.wait()
            self._tell = self._link.mention

    def _on_connect(self, connection: Any, _record: Any) -> None:
        with self._lock:
            self._link.tell("connected", _driver(connection).info.backend_pid)

    def _before_statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self._pass("before", name_of(statement))

    def _after_statement(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        name = name_of(statement)
        self._last[id(_driver(connection.connection))] = name
        self._pass("after", name)

    def _wrap(self, name: str, word: str) -> None:
        """COMMIT and ROLLBACK have no event that fires around the moment at which they are sent."""
        send: Callable[[DefaultDialect, Any], None] = getattr(DefaultDialect, name)

        def passing(dialect: DefaultDialect, connection: Any) -> None:
            driver = _driver(connection)
            if driver.info.transaction_status is TransactionStatus.IDLE:
                send(dialect, connection)  # to the driver only: nothing is sent
                return
            what = f"{word} after {self._last.get(id(driver), 'nothing')}"
            self._pass("before", what)
            send(dialect, connection)
            self._pass("after", what)

        setattr(DefaultDialect, name, passing)


def _driver(connection: Any) -> Any:
    """The psycopg connection under SQLAlchemy's adapters."""
    return getattr(connection, "driver_connection", connection)
