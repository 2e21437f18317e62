"""The database of the suite: one server per session, one database per test, copied from a template with the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import sessionmaker as session_factory

from sa_jobqueue import metadata
from tests.database import Databases, Server, choose_server, databases_of, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    from sqlalchemy.ext.asyncio import async_sessionmaker as async_session_factory
    from sqlalchemy.orm import Session

_LONG = (
    "tests/chaos/test_chaos_command.py",
    "tests/cli/test_demo.py",
    "tests/clock/test_wrong_clocks.py",
    "tests/crash/test_crash_points.py",
    "tests/crash/test_kit.py",
    "tests/crash/test_zombies.py",
    "tests/docs/test_pages.py::test_the_blocks",
    "tests/processes",
)
_SERVER = pytest.StashKey[Server]()
_VERSION = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SERVER] = choose_server()
    if getattr(config.option, "maxschedchunk", 1) is None:
        config.option.maxschedchunk = 1  # pytest-xdist: whoever is free takes the next test, not a long list of them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix the long tests into the first three quarters of the others: neither all at once, nor one alone at the end."""
    long = [item for item in items if item.nodeid.startswith(_LONG)]
    others = [item for item in items if not item.nodeid.startswith(_LONG)]
    gap = len(others) * 3 // 4 // len(long) if long else 0
    for at, item in enumerate(long):
        others.insert(at * (gap + 1), item)
    items[:] = others


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {config.stash[_SERVER]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if version := config.stash.get(_VERSION, None):
        terminalreporter.write_line(f"database: PostgreSQL {version}, {config.stash[_SERVER]}")


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    with running(pytestconfig.stash[_SERVER]) as url, databases_of(url) as databases:
        pytestconfig.stash[_VERSION] = databases.version
        yield databases


@pytest.fixture(scope="session")
def template(databases: Databases) -> Iterator[str]:
    with databases.fresh() as url:
        engine = create_engine(url)
        metadata.create_all(engine)
        engine.dispose()
        yield str(make_url(url).database)


@pytest.fixture
def database_url(databases: Databases, template: str) -> Iterator[str]:
    """A database with the tables; nothing of it is left after the test."""
    with databases.fresh(template) as url:
        yield url


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """A database without any table."""
    with databases.fresh() as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url, pool_size=20)
    yield engine
    engine.dispose()


@pytest.fixture
def sessionmaker(engine: Engine) -> session_factory[Session]:
    return session_factory(engine)


@pytest.fixture
def session(sessionmaker: session_factory[Session]) -> Iterator[Session]:
    with sessionmaker() as session:
        yield session


@pytest_asyncio.fixture
async def async_engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 (greenlet is an extra)

    engine = create_async_engine(database_url, pool_size=20)
    yield engine
    await engine.dispose()


@pytest.fixture
def async_sessionmaker(async_engine: AsyncEngine) -> async_session_factory[AsyncSession]:
    from sqlalchemy.ext.asyncio import async_sessionmaker  # noqa: PLC0415 (greenlet is an extra)

    return async_sessionmaker(async_engine)
