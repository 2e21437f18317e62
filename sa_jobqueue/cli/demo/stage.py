"""Where the demo plays: an embedded server of its own, or a database of its own on a server that is there."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, create_engine, make_url, text

from sa_jobqueue.cli.database import connect_arguments, parse_url
from sa_jobqueue.embedded import embedded_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["stage"]


@contextmanager
def stage(given: str | None) -> Iterator[URL]:
    """An empty database, gone at the end; what else is on the server is not touched."""
    if given is None:
        with embedded_postgres() as server:
            yield make_url(server.url)
        return
    url = parse_url(given, "--url")
    name = f"sa_jobqueue_demo_{secrets.token_hex(6)}"
    with _administering(url) as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
    try:
        yield url.set(database=name)
    finally:
        with _administering(url) as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def _administering(url: URL) -> Iterator[Connection]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=connect_arguments(url))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
