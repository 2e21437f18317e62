"""Workers on threads of the test's own process, and the events that they emit."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from sa_jobqueue import TaskRegistry, Worker
from sa_jobqueue.observe import RunEnded, RunStarted
from tests.waiting import wait_until

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sa_jobqueue.observe import Event

_E = TypeVar("_E")
_QUICK = {"poll_interval": 0.05, "sweep_interval": 0.05, "grace": 10}


class Events:
    """A subscriber that forgets nothing."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.all.append(event)

    def of(self, kind: type[_E]) -> list[_E]:
        return [event for event in list(self.all) if isinstance(event, kind)]

    def wait_for(self, kind: type[_E], *, count: int = 1) -> list[_E]:
        wait_until(lambda: len(self.of(kind)) >= count, timeout=20, what=f"{count} {kind.__name__}: {self.all}")
        return self.of(kind)

    def outcomes(self) -> list[str]:
        """The outcomes of all runs that ended, in their order."""
        return [event.outcome for event in self.of(RunEnded)]

    def attempts(self) -> list[int]:
        """The attempts of all runs that started, in their order."""
        return [event.job.attempt for event in self.of(RunStarted)]


class Crew:
    """Starts workers; at the end of the test they are stopped, and what one of them raised fails it."""

    def __init__(self, tasks: TaskRegistry, engine: Engine, events: Events) -> None:
        self._tasks, self._engine, self._events = tasks, engine, events
        self._threads: list[tuple[Worker, threading.Thread]] = []
        self._errors: list[BaseException] = []

    def worker(self, **options: Any) -> Worker:
        """A worker that has not been started."""
        given = {**_QUICK, "subscribers": [self._events], **options}
        if any(task.is_async for task in self._tasks):
            engine = create_async_engine(self._engine.url, pool_size=20)
            given = {"async_sessionmaker": async_sessionmaker(engine), **given}
        given = {"sessionmaker": sessionmaker(self._engine), **given}
        return Worker(self._tasks, **given)

    def start(self, *, until_empty: bool = False, **options: Any) -> Worker:
        """A worker that runs on a thread of its own."""
        worker = self.worker(**options)
        thread = threading.Thread(target=self._run, args=(worker, until_empty), daemon=True)
        self._threads.append((worker, thread))
        thread.start()
        return worker

    def drain(self, **options: Any) -> None:
        """Run a worker until it finds the queues empty."""
        self.start(until_empty=True, **options)
        self.wait()

    def wait(self, timeout: float = 30) -> None:
        """Wait until the worker that was started last has ended; raise what it raised."""
        _, thread = self._threads[-1]
        thread.join(timeout)
        assert not thread.is_alive(), f"the worker did not end within {timeout} s"
        for error in self._errors:
            raise error

    def close(self) -> None:
        for worker, thread in self._threads:
            if thread.is_alive():
                worker.stop()
                thread.join(20)
                assert not thread.is_alive(), "the worker did not stop within 20 s"
        for error in self._errors:
            raise error

    def _run(self, worker: Worker, until_empty: bool) -> None:  # noqa: FBT001 - the target of a thread
        try:
            worker.run(until_empty=until_empty)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._errors.append(error)
