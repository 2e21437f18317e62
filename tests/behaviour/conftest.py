"""Every behaviour runs on both kinds of session: ``queue`` is one client, ``clients()`` makes more of the same kind."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.behaviour.business import Base
from tests.behaviour.clients import CLIENTS, Client
from tests.behaviour.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@pytest.fixture(params=list(CLIENTS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def business_tables(engine: Engine) -> None:
    Base.metadata.create_all(engine)


@pytest.fixture
def observer(engine: Engine) -> Observer:
    return Observer(engine)


@pytest.fixture
def clients(kind: str, database_url: str) -> Iterator[Callable[..., Client]]:
    """A function that opens one more session, with the options of JobSession, an isolation level or a join mode."""
    with ExitStack() as stack:

        def another(**options: Any) -> Client:
            return stack.enter_context(CLIENTS[kind](database_url, **options))

        yield another


@pytest.fixture
def queue(clients: Callable[..., Client]) -> Client:
    return clients()


@pytest.fixture
def other(clients: Callable[..., Client]) -> Client:
    """A second session, of a second process as it were."""
    return clients()
