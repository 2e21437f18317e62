"""Under which conditions a figure was measured; a figure without them says little."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from benchmarks.server import SETTINGS, Arena, file_system

__all__ = ["conditions"]

_LIBRARIES: Final = ("SQLAlchemy", "psycopg", "alembic", "greenlet", "sa-jobqueue")
_BLOCK: Final = b"\0" * 8192
_SYNCS: Final = 200


def conditions(arena: Arena, data: Path | None) -> dict[str, Any]:
    """Machine, server, settings, versions; with an own server also its disk."""
    found: dict[str, Any] = {
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "postgresql": arena.admin.scalar(text("SHOW server_version")),
        "settings": {name: arena.admin.scalar(text(f"SHOW {name}")) for name in SETTINGS},
    }
    if data is not None:
        found |= {"file_system": file_system(data), "fdatasync_us": fdatasync_us(data.parent)}
    return found


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def fdatasync_us(folder: Path) -> float:
    """Median microseconds of writing one 8 kB block and syncing it."""
    seconds = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(_SYNCS):
            file.seek(0)
            file.write(_BLOCK)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) * 1e6, 1)
