"""What a worker process of a supervisor does, from its first statement to its exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, TypeAlias

from sa_jobqueue.observe import Event, WorkerStarted
from sa_jobqueue.worker.leash import Collar

if TYPE_CHECKING:
    from sa_jobqueue.worker.worker import Worker

__all__ = ["Make", "live"]

Make: TypeAlias = "Callable[[], Worker | AbstractContextManager[Worker]]"


def live(make: Make, end: socket, number: int, until_empty: bool, inherited: Sequence[socket] | None) -> None:  # noqa: FBT001 - arguments of a process
    """Make the worker here, in the child, and run it.

    Args:
        make: makes the worker, or a context manager around it.
        end: the child's end of the leash.
        number: distinguishes this process in ``claimed_by`` from all others of its supervisor, former ones included.
        until_empty: as of :meth:`Worker.run`.
        inherited: sockets of the supervisor that a fork has copied; None if this process is no fork.
    """
    for each in inherited or ():
        each.close()  # or the others would not see their supervisor die while this process lives
    collar = Collar(end)
    collar.put_on()
    made = make()
    with made if isinstance(made, AbstractContextManager) else nullcontext(made) as worker:
        worker.name = f"{worker.name}-{number}"
        if inherited is not None:
            worker.forget_connections()
        worker.subscribe(partial(_report, collar))
        collar.stop_by(worker.stop)
        worker.run(until_empty=until_empty, signals=False)


def _report(collar: Collar, event: Event) -> None:
    if isinstance(event, WorkerStarted):
        collar.serving()
