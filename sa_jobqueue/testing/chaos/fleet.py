"""The processes of a chaos run: worker slots, whose processes are killed and replaced, and the load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from sa_jobqueue.testing.chaos.crew import URL_VARIABLE, Orders
from sa_jobqueue.testing.chaos.history import read_history
from sa_jobqueue.testing.chaos.load import LoadOrders

__all__ = ["CREW", "Fleet", "FleetBroken"]

CREW: Final = "sa_jobqueue.testing.chaos.crew"
"""The module that is run as a worker process."""

_LOAD: Final = "sa_jobqueue.testing.chaos.load"
_PATIENCE: Final = 20.0
_LAST_WORDS: Final = 2_000
_CLEAN: Final = frozenset({0, -signal.SIGTERM})
"""Exit codes after SIGTERM: stopped, or still importing, when there was nothing to stop."""


class FleetBroken(RuntimeError):
    """A process ended by itself, or did not end when it was told to; the message has the end of its log."""


_Worker = tuple[str, subprocess.Popen[bytes]]


class Fleet:
    """Processes that do not outlive the ``with`` block, nor (but for stopped ones) this process.

    Args:
        url: of the database; it travels in the environment, since it may hold a password.
        orders: for each worker process, apart from its name.
        slots: how many worker processes.
        crew: the module that is run as a worker process.
    """

    def __init__(self, url: str, orders: Orders, slots: int, crew: str = CREW) -> None:
        self._environment = {**os.environ, URL_VARIABLE: url}
        self._orders, self._crew, self._folder = orders, crew, Path(orders.folder)
        self._made, self._size = 0, slots
        self._slots: list[_Worker] = []
        self._reserve: _Worker | None = None
        self._load: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        workers = [*self._slots, *filter(None, [self._reserve])]
        for process in [*(process for _, process in workers), *filter(None, [self._load])]:
            process.kill()
            process.communicate()

    def muster(self) -> None:
        """Start a worker for every slot, and one that waits to step in."""
        waiting = [self._start_worker() for _ in range(self._size + 1)]
        self._reserve = waiting.pop()
        self._slots = [_set_to_work(worker) for worker in waiting]

    def begin_load(self, orders: LoadOrders) -> None:
        """Start to enqueue."""
        self._load = self._start(_LOAD, orders.as_text(), "load")

    def end_load(self) -> None:
        """Stop to enqueue; nothing is enqueued any more when this returns.

        Raises:
            FleetBroken: the load failed.
        """
        if self._load is not None:
            self._load.communicate(timeout=_PATIENCE)
            self._expect("load", self._load, {0})
            self._load = None

    @property
    def names(self) -> list[str]:
        """The workers of now, in the order of their slots."""
        return [name for name, _ in self._slots]

    @property
    def complete(self) -> bool:
        """Whether the worker in every slot has begun to serve."""
        return all(map(self._has_served, self.names))

    def kill(self, name: str) -> None:
        """SIGKILL; the worker in reserve takes the slot."""
        slot = self.names.index(name)
        process = self._slots[slot][1]
        process.kill()
        process.communicate()
        self._fill(slot)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._signal(name, signal.SIGCONT)

    def check(self) -> None:
        """Make sure that every process is there: a worker waits for its database, and does not end with it.

        Raises:
            FleetBroken: one has ended by itself.
        """
        for name, process in self._slots:
            if process.poll() is not None:
                raise FleetBroken(self._obituary(name, process))
        if self._load is not None and self._load.poll() is not None:
            raise FleetBroken(self._obituary("load", self._load))

    def dismiss(self) -> None:
        """SIGTERM to all workers, and wait until they have ended.

        Raises:
            FleetBroken: one did not end in time, or failed.
        """
        self.check()
        for _, process in self._slots:
            process.terminate()
        for name, process in self._slots:
            self._expect(name, process, _CLEAN)

    def _signal(self, name: str, number: signal.Signals) -> None:
        for held, process in self._slots:
            if held == name:
                process.send_signal(number)

    def _fill(self, slot: int) -> None:
        """The worker in reserve steps in, and another one gets ready."""
        self._slots[slot] = _set_to_work(self._reserve or self._start_worker())
        self._reserve = self._start_worker()

    def _has_served(self, name: str) -> bool:
        return bool(read_history(self._folder, name))

    def _start_worker(self) -> _Worker:
        self._made += 1
        name = f"worker-{self._made}"
        return name, self._start(self._crew, replace(self._orders, name=name).as_text(), name)

    def _start(self, module: str, orders: str, name: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - our own module and orders
                [sys.executable, "-m", module, orders],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _expect(self, name: str, process: subprocess.Popen[bytes], codes: Collection[int]) -> None:
        try:
            code: int | None = process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        if code not in codes:
            raise FleetBroken(self._obituary(name, process))

    def _obituary(self, name: str, process: subprocess.Popen[bytes]) -> str:
        state = "is still running" if process.poll() is None else f"ended with code {process.returncode}"
        return f"process {name} {state}; its log ends:\n{self._log(name).read_text(errors='replace')[-_LAST_WORDS:]}"

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _set_to_work(worker: _Worker) -> _Worker:
    """Give the word; one that has ended while it waited is found by the next check."""
    stdin = worker[1].stdin
    if stdin is not None:
        with suppress(BrokenPipeError):
            os.write(stdin.fileno(), b"!")
    return worker
