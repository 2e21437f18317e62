"""Worker processes that a test can stop at a boundary, kill, pause and resume. POSIX only: they are forked."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

from sa_jobqueue.testing.crash.link import Link
from sa_jobqueue.testing.crash.points import CrashPoint

__all__ = ["WorkerProcess", "WorkerProcesses"]


class WorkerProcess:
    """One process that runs the application's drain, up to the point that it is aimed at.

    Attributes:
        pid: its process id.
        passed: the boundaries that it has passed, in order.
        backends: the server processes that it was connected to.
        timeout: seconds without a word from it before a test gives up.
    """

    def __init__(self, link: Link, timeout: float) -> None:
        self.pid = 0
        self.passed: list[CrashPoint] = []
        self.backends: list[int] = []
        self.timeout = timeout
        self._link = link

    def begins(self) -> None:
        """Wait until ``pid`` is known."""
        self._hear_until("born")

    def finish(self) -> list[CrashPoint]:
        """Wait until the drain has returned; the answer is what was passed.

        Raises:
            AssertionError: if it raised, died, or took too long.
        """
        ending = self._hear_until("done", "failed")
        assert ending == "done", f"the worker process died unasked at {self.passed[-1:]}"  # noqa: S101 - told to a test
        return self.passed

    def reaches(self) -> bool:
        """Wait until it stands at the point that it is aimed at; False if its drain returned without passing there."""
        return self._hear_until("reached", "done", "failed") == "reached"

    def dies(self) -> bool:
        """Wait until it has killed itself at its point; False if its drain returned without passing there."""
        reached = self.reaches()
        self._hear_until()
        return reached

    def kill(self) -> None:
        """SIGKILL at whatever it is doing; the process is gone when this returns."""
        os.kill(self.pid, signal.SIGKILL)
        self._hear_until()

    def pause(self) -> None:
        """SIGSTOP: to everybody else it looks dead, but it is not."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT, and leave to go on from the point where it stands."""
        os.kill(self.pid, signal.SIGCONT)
        self._link.go_on()

    def close(self) -> None:
        """Hang up: the process ends at its next boundary, or at the one where it stands."""
        self._link.close()

    def _hear_until(self, *endings: str) -> str | None:
        try:
            for kind, value in self._link.heard():
                self._note(kind, value)
                if kind in endings:
                    return kind
        except TimeoutError:
            last = self.passed[-1] if self.passed else "its start"
            msg = (
                f"the worker process said nothing for {self.timeout:g} s; it was last seen {last}. Does it wait for "
                f"a lock that a paused worker holds? Give the worker a small idle_timeout in this test."
            )
            raise AssertionError(msg) from None
        return None

    def _note(self, kind: str, value: object) -> None:
        match kind, value:
            case "born", int(pid):
                self.pid = pid
            case "connected", int(pid):
                self.backends.append(pid)
            case "passed", list(point):
                self.passed.append(CrashPoint.from_list(point))
            case "failed", str(trace):
                msg = f"the drain raised in the worker process:\n{trace}"
                raise AssertionError(msg)


class WorkerProcesses:
    """Makes worker processes; all of them are gone when the ``with`` block ends.

    Args:
        drain: ``"module:function"``, an importable function without arguments that works the queue until it is empty.
            Importing its module must neither connect to the database nor start threads: processes are forked after it.
        timeout: seconds without a word from a process before the test fails.

    Raises:
        AssertionError: if the module cannot be imported; its traceback is on stderr.
    """

    def __init__(self, drain: str, *, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._started: list[WorkerProcess] = []
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._nest = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, "-m", "sa_jobqueue.testing.crash.nest", str(theirs.fileno()), drain],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        if not self._orders.recv(16):
            self._nest.wait()
            self._orders.close()
            msg = f"{drain} cannot be imported in a process of its own; the traceback on stderr says why"
            raise AssertionError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        self.let_go()
        self._nest.wait()

    def let_go(self) -> None:
        """Hang up on all processes: those that still run end at their next boundary."""
        while self._started:
            self._started.pop().close()

    def start(self, aim: CrashPoint | None = None, *, fatal: bool = False, **environment: str) -> WorkerProcess:
        """Fork a process that runs the drain, with these environment variables set before it starts.

        At ``aim`` it waits to be paused; or, if that is ``fatal``, sends itself SIGKILL.
        """
        ours, theirs = socket.socketpair()
        ours.settimeout(self._timeout)
        order = json.dumps({"aim": aim and aim.as_list(), "fatal": fatal, "environment": environment}).encode()
        with theirs:
            socket.send_fds(self._orders, [order], [theirs.fileno()])
        process = WorkerProcess(Link(ours), self._timeout)
        self._started.append(process)
        process.begins()
        return process
