"""Run a module in a process whose wall clock is wrong: ``python -m tests.clock.shift SECONDS MODULE ARGUMENTS…``.

Only the wall clock of Python is bent, before anything of this project is imported; the monotonic clock is right, as it
is on a machine whose date is wrong. (libfaketime bends both, and is not everywhere.)
"""

from __future__ import annotations

import datetime as dt
import runpy
import sys
import time
from typing import Any

# Their C parts look at the size of the real classes when they are imported.
import psycopg  # noqa: F401
import sqlalchemy.ext.asyncio  # noqa: F401


def shift(seconds: float) -> None:
    """Add ``seconds`` to everything that tells the date."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    dt.date, dt.datetime = _Date, _Datetime  # type: ignore[misc]  # that is the shift


def _of_now(convert: Any) -> Any:
    return lambda at=None: convert(time.time() if at is None else at)


class _AsTheRealOne(type):
    """What the driver makes in C is still an instance."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


class _Date(dt.date, metaclass=_AsTheRealOne):
    @classmethod
    def today(cls) -> Any:
        return cls.fromtimestamp(time.time())


class _Datetime(dt.datetime, metaclass=_AsTheRealOne):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(dt.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


if __name__ == "__main__":
    offset, module, *arguments = sys.argv[1:]
    shift(float(offset))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
