"""Fixtures of this folder."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker as session_factory

from tests.proofs.app import QUEUE
from tests.proofs.fixtures import *  # noqa: F403 - fixtures that two folders share
from tests.proxy import Proxy, proxy_before
from tests.worker.core import Both

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncConnection
    from sqlalchemy.orm import Session, sessionmaker

    from sa_jobqueue import TaskRegistry
    from tests.worker.core import Act


@pytest.fixture
def never() -> Iterator[Event]:
    """What a handler that is stuck in Python waits for; set at the end of the test, so that its thread can end."""
    event = Event()
    yield event
    event.set()


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with proxy_before(database_url) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy) -> Iterator[sessionmaker[Session]]:
    """Sessions, and so workers, that reach the database only through the proxy."""
    engine = create_engine(proxy.url, pool_size=20)
    yield session_factory(engine)
    engine.dispose()


@pytest.fixture(params=["function", "coroutine"])
def declare_core(request: pytest.FixtureRequest, tasks: TaskRegistry) -> Callable[..., None]:
    """A function that declares a Core task of what it does with its connection and a name; called as it is called."""

    def declare(act: Act, **options: object) -> None:
        def function(connection: Connection, name: str = "it") -> None:
            act(connection, name)

        async def coroutine(connection: AsyncConnection, name: str = "it") -> None:
            await connection.run_sync(act, name)

        given = {"queue": QUEUE, "core": True, "name": act.__name__, "max_attempts": 1, **options}
        tasks.task(**given)(locals()[request.param])  # type: ignore[call-overload]  # by name

    return declare


@pytest.fixture
def make_both(engine: Engine) -> Iterator[Callable[..., Both]]:
    """A function that makes engines of the options given; a worker disposes of the async one."""
    made: list[Both] = []

    def make(**options: object) -> Both:
        made.append(Both.of(engine.url, **{"pool_size": 8, **options}))
        return made[-1]

    yield make
    for both in made:
        both.sync.dispose()


@pytest.fixture
def both(make_both: Callable[..., Both]) -> Both:
    """Engines that a test may listen to, and look at the pools of."""
    return make_both()
