"""One chaos run: muster the fleet, load it, hurt it, let it drain, and check what it did."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sa_jobqueue.testing.chaos.checker import check
from sa_jobqueue.testing.chaos.crew import Orders
from sa_jobqueue.testing.chaos.fleet import CREW, Fleet, FleetBroken
from sa_jobqueue.testing.chaos.history import Deed, read_history
from sa_jobqueue.testing.chaos.injector import Injector
from sa_jobqueue.testing.chaos.ledger import Ledger
from sa_jobqueue.testing.chaos.load import LoadOrders
from sa_jobqueue.testing.chaos.plan import draw_plan
from sa_jobqueue.testing.chaos.report import Report, sum_up

__all__ = ["Settings", "run_chaos"]

_MUSTER: Final = 60.0
_LOOK: Final = 0.1


@dataclass(frozen=True, slots=True)
class Settings:
    """What a chaos run is made of.

    ``seconds`` is how long load and faults go on, after the fleet is ready; ``lease`` the visibility timeout in
    seconds. There are at most ``rate`` requests per second, and none while more than ``backlog`` jobs are queued. After
    ``drain`` seconds without one more finished job the fleet is given up. ``crew`` is the module that is run as a
    worker process; ``history`` an empty folder for the journals and logs, which without one are gone afterwards.
    """

    seed: int
    seconds: float
    workers: int = 3
    concurrency: int = 8
    lease: float = 1.0
    rate: float = 25.0
    enqueuers: int = 4
    drain: float = 60.0
    backlog: int = 15
    crew: str = CREW
    history: Path | None = None


def run_chaos(
    url: str, settings: Settings, restart: Callable[[], None] | None = None, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Run on the empty database at ``url``.

    Args:
        url: a SQLAlchemy URL with psycopg as its driver; its role may terminate backends of its own.
        settings: how long, how many, how hard.
        restart: restarts the server like a crash; None if it is not ours to restart.
        say: told what happens, a line at a time.

    Raises:
        FleetBroken: a process ended that nobody killed, or did not end when told to.
        ValueError: ``settings.history`` is not empty.
    """
    ledger = Ledger(url)
    ledger.prepare()
    with _folder(settings.history) as folder:
        orders = Orders("", str(folder), settings.lease, settings.concurrency)
        with Fleet(url, orders, settings.workers, settings.crew) as fleet:
            injector = Injector(fleet, ledger, restart, say)
            drain_seconds = _sail(fleet, ledger, injector, settings, folder, restarts=restart is not None)
            left = ledger.describe_alive()
            fleet.dismiss()
        history, remains = read_history(folder), ledger.remains()
    return sum_up(
        seed=settings.seed,
        seconds=settings.seconds,
        drain_seconds=drain_seconds,
        toll=injector.toll,
        history=history,
        remains=remains,
        findings=check(history, remains),
        left=left,
        restarts=restart is not None,
    )


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="sa-jobqueue-chaos-") as made:
            yield Path(made)
        return
    kept.mkdir(parents=True, exist_ok=True)
    if any(kept.iterdir()):
        msg = f"{kept} is not empty; the history of another run would be taken for this one's"
        raise ValueError(msg)
    yield kept


def _sail(
    fleet: Fleet, ledger: Ledger, injector: Injector, settings: Settings, folder: Path, *, restarts: bool
) -> float:
    """The course of the run; the answer is how many seconds the fleet took to drain."""
    plan = draw_plan(settings.seed, settings.seconds, lease=settings.lease, restarts=restarts)
    fleet.muster()
    fleet.begin_load(
        LoadOrders(str(folder), settings.seed, settings.lease, settings.rate, settings.enqueuers, settings.backlog)
    )
    if not _await(fleet, lambda: _at_work(folder) == settings.workers, _MUSTER):
        msg = f"the workers have not all begun a job within {_MUSTER:g} s; is the machine overloaded?"
        raise FleetBroken(msg)
    injector.carry_out(plan, settings.seconds)
    fleet.end_load()
    began = time.monotonic()
    _drain(fleet, ledger, settings.drain)
    return time.monotonic() - began


def _drain(fleet: Fleet, ledger: Ledger, patience: float) -> None:
    """Wait until no job is left, or their number stands still for so many seconds."""
    left = ledger.alive()
    while left and _await(fleet, partial(_fewer, ledger, left), patience):
        left = ledger.alive()


def _fewer(ledger: Ledger, left: int) -> bool:
    return ledger.alive() < left


def _at_work(folder: Path) -> int:
    return len({entry.process for entry in read_history(folder) if entry.deed is Deed.CLAIM})


def _await(fleet: Fleet, ready: Callable[[], bool], seconds: float) -> bool:
    """Whether it is ready in time; raises FleetBroken if a process ends meanwhile."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not ready():
        fleet.check()
        if time.monotonic() > deadline:
            return False
        pause.wait(_LOOK)
    return True
