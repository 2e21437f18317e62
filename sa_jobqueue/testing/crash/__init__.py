"""Kill or pause a worker process at every boundary between it and the database, to test your own handlers.

::

    for crash in crash_points("shop:drain", enqueue=place_order, sessions=new_session):
        with new_session() as session:
            assert payments_per_order(session) == {1}, crash
"""

from __future__ import annotations

from sa_jobqueue.testing.crash.kit import Crash, Zombie, crash_points, zombies
from sa_jobqueue.testing.crash.points import Actor, CrashPoint
from sa_jobqueue.testing.crash.processes import WorkerProcess, WorkerProcesses

__all__ = ["Actor", "Crash", "CrashPoint", "WorkerProcess", "WorkerProcesses", "Zombie", "crash_points", "zombies"]
