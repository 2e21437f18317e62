"""From ``--url`` or the environment to an engine, and to one transaction on tables that this release can serve."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from sa_jobqueue.cli.problems import MISUSED, Problem
from sa_jobqueue.migrations import check_schema
from sa_jobqueue.models import Models

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["connect_arguments", "find_url", "open_engine", "open_session", "parse_url"]

VARIABLES: Final = ("SA_JOBQUEUE_URL", "DATABASE_URL")

_DRIVER: Final = "postgresql+psycopg"
_DRIVERLESS: Final = frozenset({"postgresql", "postgres"})


def find_url(given: str | None, environ: Mapping[str, str] = os.environ) -> URL:
    """The URL of ``--url``, else of SA_JOBQUEUE_URL, else of DATABASE_URL.

    Raises:
        Problem: there is none, or it is not one of PostgreSQL through psycopg.
    """
    sources = {"--url": given, **{name: environ.get(name) for name in VARIABLES}}
    for source, text in sources.items():
        if text:
            return parse_url(text, source)
    msg = f"no database: give --url postgresql://user@host/name, or set {' or '.join(VARIABLES)}"
    raise Problem(msg, code=MISUSED)


def parse_url(text: str, source: str) -> URL:
    """``text`` with psycopg as its driver; ``source`` names it in errors, which never show a password.

    Raises:
        Problem: not a URL, not PostgreSQL, or another driver.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        msg = f"{source} is not a database URL; write postgresql://user@host:5432/name"
        raise Problem(msg, code=MISUSED) from None
    if url.drivername in _DRIVERLESS:
        return url.set(drivername=_DRIVER)
    if url.drivername != _DRIVER:
        msg = f"{source} names {url.drivername}; this command speaks to PostgreSQL through psycopg: {_DRIVER}://…"
        raise Problem(msg, code=MISUSED)
    return url


@contextmanager
def open_engine(given: str | None, *, schema: str | None = None) -> Iterator[Engine]:
    """An engine on the chosen database, disposed of at the end; its errors never show parameters."""
    url = find_url(given)
    engine = create_engine(url, hide_parameters=True, connect_args=connect_arguments(url))
    try:
        yield engine if schema is None else engine.execution_options(schema_translate_map={None: schema})
    finally:
        engine.dispose()


@contextmanager
def open_session(given: str | None, *, schema: str | None = None, models: Models | None = None) -> Iterator[Session]:
    """One transaction on the tables of ``models``, committed at the end of the block.

    Raises:
        SchemaMismatch: the tables are missing, or of another release.
    """
    mapped = models or Models()
    jobs = mapped.table(mapped.job)
    with open_engine(given, schema=schema) as engine, Session(engine) as session, session.begin():
        check_schema(session.connection(), jobs.schema or schema, job_table=jobs.name)
        yield session


def connect_arguments(url: URL) -> dict[str, Any]:
    """What a connection gets unless the URL says otherwise; of what the URL says, that which is no text to psycopg.

    Raises:
        Problem: a ``prepare_threshold`` that is neither a number nor none.
    """
    defaults = {"fallback_application_name": "sa-jobqueue", "connect_timeout": "10"}
    arguments: dict[str, Any] = {name: value for name, value in defaults.items() if name not in url.query}
    if (threshold := url.query.get("prepare_threshold")) is not None:
        arguments["prepare_threshold"] = _threshold(str(threshold))
    return arguments


def _threshold(said: str) -> int | None:
    if said.lower() == "none":
        return None
    if not said.isdecimal():
        msg = f"prepare_threshold in the URL is a number or none, not {said!r}"
        raise Problem(msg, code=MISUSED)
    return int(said)
