"""``session`` is here what a developer's fixture makes it: one connection, rolled back at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from sqlalchemy.orm import Session

from tests.testing.shop import Base

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession


@pytest.fixture
def shop(engine: Engine) -> Engine:
    Base.metadata.create_all(engine)
    return engine


@pytest.fixture
def session(shop: Engine) -> Iterator[Session]:
    with shop.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()


@pytest_asyncio.fixture
async def async_session(shop: Engine, async_engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    from sqlalchemy.ext.asyncio import AsyncSession  # noqa: PLC0415 (greenlet is an extra)

    del shop
    async with async_engine.connect() as connection:
        transaction = await connection.begin()
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        await transaction.rollback()
