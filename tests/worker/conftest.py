"""Fixtures of this folder."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker as session_factory

from tests.proofs.fixtures import *  # noqa: F403 - fixtures that two folders share
from tests.proxy import Proxy, proxy_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session, sessionmaker


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
