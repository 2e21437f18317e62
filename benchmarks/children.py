"""Work in processes of its own: forked from a server that has imported everything and done nothing else.

So the harness's threads, garbage and connections weigh on nobody, and a start costs milliseconds, not an import.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

__all__ = ["ChildFailed", "child", "in_children"]

_PATIENCE: Final = 900.0
_PRELOADED: Final = [
    "benchmarks.cells.workers",
    "benchmarks.cells.limits",
    "benchmarks.cells.producers",
    "benchmarks.cells.hints",
    "benchmarks.cells.paired",
]
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(_PRELOADED)


class ChildFailed(RuntimeError):
    """A process of ours ended with an error, which is the message."""


def in_children(work: Callable[..., Any], arguments: Sequence[Any], processes: int = 1) -> list[Any]:
    """Call ``work(*arguments)`` in each of the processes, at once when all of them are there; their answers.

    Raises:
        ChildFailed: one of them failed, or did not answer in 15 minutes.
    """
    with ExitStack() as stack:
        pipes = [stack.enter_context(child(_when_all_are_there, work, *arguments)) for _ in range(processes)]
        for pipe in pipes:
            answer(pipe)
        for pipe in pipes:
            pipe.send("go")
        return [answer(pipe) for pipe in pipes]


@contextmanager
def child(work: Callable[..., Any], *arguments: Any) -> Iterator[Connection]:
    """Run ``work(pipe, *arguments)`` in a process; the block gets the other end of the pipe.

    At the end of the block the process is waited for; if the block fails, it is killed.
    """
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=_report, args=(theirs, work, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(_PATIENCE)
    finally:
        process.kill()
        process.join()
        ours.close()


def answer(pipe: Connection, timeout: float = _PATIENCE) -> Any:
    """The next thing that the process says.

    Raises:
        ChildFailed: it says that it failed, or says nothing within ``timeout`` seconds.
    """
    if not pipe.poll(timeout):
        msg = f"a process said nothing for {timeout:g} s"
        raise ChildFailed(msg)
    try:
        said = pipe.recv()
    except EOFError:
        msg = "a process ended without a word"
        raise ChildFailed(msg) from None
    if isinstance(said, ChildFailed):
        raise said
    return said


def _report(pipe: Connection, work: Callable[..., None], *arguments: Any) -> None:
    try:
        work(pipe, *arguments)
    except BaseException:  # noqa: BLE001 - the harness is told of everything
        pipe.send(ChildFailed(traceback.format_exc()))


def _when_all_are_there(pipe: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    pipe.send("here")
    pipe.recv()
    pipe.send(work(*arguments))
