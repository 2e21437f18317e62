"""For tests of an application that has the queue in it: factories, drains, a look at what is enqueued, cleaning up.

Two ways to run jobs in a test:

* **same session**: :func:`drain` (or :func:`adrain`) runs them in the session that the test rolls back. Fast, one
  connection, therefore nothing about concurrency: no lock is ever waited for or skipped.
* **committed**: a real :class:`sa_jobqueue.Worker` on committed rows, which :func:`empty_tables` takes away afterwards.
  The only one that can show what two workers do to each other.

And two that run handlers in processes of their own: :func:`crash_points` kills one at every boundary between it and the
database, :func:`zombies` pauses it there until its lease is over.

Names are imported when they are first used, so that the pytest plugin costs nothing where it is not used, and the
factories need factory-boy (``pip install 'sa-jobqueue[testing]'``) only where they are.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sa_jobqueue.testing.asserting import PendingJob, assert_enqueued
    from sa_jobqueue.testing.committed import Committed, empty_tables, refuse_leftovers
    from sa_jobqueue.testing.crash import crash_points, zombies
    from sa_jobqueue.testing.draining import adrain, drain
    from sa_jobqueue.testing.factories import (
        DeadLetterFactory,
        DedupKeyFactory,
        Factories,
        JobFactory,
        JobLogFactory,
        factories_for,
    )
    from sa_jobqueue.testing.report import DrainedRun, DrainReport

__all__ = [
    "Committed",
    "DeadLetterFactory",
    "DedupKeyFactory",
    "DrainReport",
    "DrainedRun",
    "Factories",
    "JobFactory",
    "JobLogFactory",
    "PendingJob",
    "adrain",
    "assert_enqueued",
    "crash_points",
    "drain",
    "empty_tables",
    "factories_for",
    "refuse_leftovers",
    "zombies",
]

_HOMES = MappingProxyType(
    {
        "asserting": ("PendingJob", "assert_enqueued"),
        "committed": ("Committed", "empty_tables", "refuse_leftovers"),
        "crash": ("crash_points", "zombies"),
        "draining": ("adrain", "drain"),
        "factories": (
            "DeadLetterFactory",
            "DedupKeyFactory",
            "Factories",
            "JobFactory",
            "JobLogFactory",
            "factories_for",
        ),
        "report": ("DrainReport", "DrainedRun"),
    }
)


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
