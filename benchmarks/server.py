"""The server to measure on, and one database on it that every run of a cell finds in the same state."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, make_url, text

from benchmarks.business import TASK, Base
from sa_jobqueue import metadata
from sa_jobqueue.embedded import embedded_postgres

__all__ = ["SETTINGS", "Arena", "arena", "file_system", "serving"]

SETTINGS: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_connections": "200",
}
"""Of the embedded server: PostgreSQL's defaults but for the last two. A commit is a commit."""

_NAMED: Final = {"application_name": "benchmarks"}
_PATIENCE: Final = 30.0
_IN_MEMORY: Final = {"tmpfs", "ramfs"}
_TABLES: Final = ", ".join(table.name for each in (metadata, Base.metadata) for table in each.sorted_tables)
_SEED: Final = text(
    "INSERT INTO jobqueue_job (queue, priority, task, args, dedup_key)"
    " SELECT :queue, :priority, :task, jsonb_build_object('n', n), CASE WHEN :keys THEN :task || ':' || n END"
    " FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n ORDER BY n"
)

_OTHERS: Final = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND backend_type = 'client backend' AND application_name <> :application_name"
)


@contextmanager
def serving(url: str | None, folder: Path | None = None) -> Iterator[tuple[str, Path | None]]:
    """The URL of a role that may create databases, and the folder of the data if the server is our own.

    Raises:
        RuntimeError: no folder on a real disk is known for an own server.
    """
    if url is not None:
        yield make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False), None
        return
    with embedded_postgres(within=folder or _disk_folder(), settings=SETTINGS) as server:
        yield server.url, server.data


def file_system(folder: Path) -> str:
    """The kind of the file system that holds a folder (``ext4``, ``tmpfs``), or ``unknown``."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    kinds = {line.split()[1]: line.split()[2] for line in mounts.read_text(encoding="utf-8").splitlines()}
    real = folder.resolve()
    return next((kinds[str(each)] for each in (real, *real.parents) if str(each) in kinds), "unknown")


def _disk_folder() -> Path:
    for folder in (Path(tempfile.gettempdir()), Path("/var/tmp"), Path.cwd()):  # noqa: S108 (random names in it)
        if folder.is_dir() and file_system(folder) not in _IN_MEMORY:
            return folder
    msg = "every folder known lies in memory, where a commit costs nothing; name one on a disk with --folder"
    raise RuntimeError(msg)


class Arena:
    """One database with our tables and the application's.

    ``engine`` is the harness's own, for sessions; ``admin`` commits each statement by itself.
    """

    def __init__(self, engine: Engine, admin: Connection) -> None:
        self.url = engine.url.render_as_string(hide_password=False)
        self.engine = engine
        self.admin = admin

    def clear(self) -> None:
        """Empty every table; what was dead in them is gone too."""
        self.admin.execute(text(f"TRUNCATE {_TABLES} RESTART IDENTITY"))

    def seed(
        self,
        jobs: int,
        *,
        task: str = TASK,
        queue: str = "default",
        priority: int = 0,
        keys: bool = True,
        first: int = 1,
    ) -> None:
        """Enqueue jobs numbered from ``first`` on, each with a dedup key unless told otherwise."""
        span = {"first": first, "last": first + jobs - 1}
        self.admin.execute(_SEED, {"queue": queue, "priority": priority, "task": task, "keys": keys, **span})

    def wait_for_quiet(self) -> None:
        """Return when nobody is connected but the harness: a server process writes its counters down when it ends.

        Raises:
            RuntimeError: somebody stays.
        """
        deadline = time.monotonic() + _PATIENCE
        while others := self.admin.scalar(_OTHERS, _NAMED):
            if time.monotonic() > deadline:
                msg = f"{others} connections of processes that have ended are still open"
                raise RuntimeError(msg)
            time.sleep(0.002)

    def settle_down(self) -> None:
        """Statistics for the planner, and no checkpoint that a run before has earned."""
        self.admin.execute(text(f"VACUUM (ANALYZE) {_TABLES}"))
        self.admin.execute(text("CHECKPOINT"))


@contextmanager
def arena(server_url: str) -> Iterator[Arena]:
    """A database of our own on the server, dropped at the end under whoever still uses it."""
    name = f"sa_jobqueue_bench_{secrets.token_hex(6)}"
    with _administering(server_url) as server:
        server.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
        try:
            with _furnished(make_url(server_url).set(database=name).render_as_string(hide_password=False)) as ready:
                yield ready
        finally:
            server.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def _furnished(url: str) -> Iterator[Arena]:
    engine = create_engine(url, connect_args=_NAMED)
    try:
        for each in (metadata, Base.metadata):
            each.create_all(engine)
        with _administering(url) as admin:
            yield Arena(engine, admin)
    finally:
        engine.dispose()


@contextmanager
def _administering(url: str) -> Iterator[Connection]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=_NAMED)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
