"""The drain of an ``AsyncSession`` lends its connection to Core handlers: coroutine functions, and plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from sa_jobqueue import CommitRefused, JobQueueError, TaskRegistry, current_job
from sa_jobqueue.testing import adrain
from tests.testing.shop import Order, notes

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

core = TaskRegistry()


@core.task(queue="shop", core=True, dedup_key=lambda note: f"note:{note}")
async def anote(connection: AsyncConnection, note: str) -> None:
    await connection.execute(insert(Order).values(note=f"{note} by job {current_job().task}"))


@core.task(queue="shop", core=True)
def note_in_sync(connection: Connection, note: str) -> None:
    connection.execute(insert(Order).values(note=f"{note} on a {type(connection).__name__}"))


@core.task(queue="shop", core=True)
async def afail(connection: AsyncConnection) -> None:
    await connection.execute(insert(Order).values(note="half"))
    raise RuntimeError


@core.task(queue="shop", core=True)
async def rename(connection: AsyncConnection, order_id: int, note: str) -> None:
    await connection.execute(update(Order).where(Order.id == order_id).values(note=note))


@core.task(queue="shop", core=True)
async def end(connection: AsyncConnection, how: str) -> None:
    await connection.execute(insert(Order).values(note="half"))
    await getattr(connection, how)()


async def test_an_async_drain_runs_core_handlers_of_both_kinds(async_session: AsyncSession) -> None:
    await anote.enqueue(async_session, note="tea")
    await note_in_sync.enqueue(async_session, note="cake")

    report = await adrain(async_session, core)

    assert len(report.check().done) == 2
    assert await async_session.run_sync(notes) == ["tea by job anote", "cake on a Connection"]


async def test_an_async_core_handler_that_fails_loses_its_own_changes_only(async_session: AsyncSession) -> None:
    async_session.add(Order(note="of the test"))
    await afail.enqueue(async_session)

    report = await adrain(async_session, core)
    await async_session.commit()

    assert (len(report.failed), await async_session.run_sync(notes)) == (1, ["of the test"])


@pytest.mark.parametrize(
    ("how", "refusal"), [("commit", CommitRefused), ("close", CommitRefused), ("rollback", JobQueueError)]
)
async def test_an_async_core_handler_that_ends_the_transaction_fails_and_the_test_keeps_its_rows(
    async_session: AsyncSession, how: str, refusal: type[Exception]
) -> None:
    async_session.add(Order(note="of the test"))
    await end.enqueue(async_session, how)

    report = await adrain(async_session, core)
    await async_session.commit()

    assert [type(error) for error in report.errors] == [refusal]
    assert await async_session.run_sync(notes) == ["of the test"]


async def test_an_object_is_read_anew_after_an_async_core_handler(async_session: AsyncSession) -> None:
    order = Order(note="old")
    async_session.add(order)
    await async_session.flush()
    await rename.enqueue(async_session, order.id, note="new")

    (await adrain(async_session, core)).check()
    await async_session.refresh(order)

    assert order.note == "new"


async def test_an_async_core_duplicate_is_suppressed(async_session: AsyncSession) -> None:
    for _ in range(2):
        await anote.enqueue(async_session, note="tea")

    report = await adrain(async_session, core)

    assert (len(report.done), len(report.duplicates)) == (1, 1)
    assert len(await async_session.run_sync(notes)) == 1


async def test_after_an_async_drain_the_connection_ends_its_transaction_again(
    shop: Engine, async_engine: AsyncEngine
) -> None:
    del shop
    async with AsyncSession(async_engine) as session:
        await anote.enqueue(session, note="tea")
        await adrain(session, core)
        connection = await session.connection()

        await connection.rollback()

        assert not connection.in_transaction()


async def test_a_job_that_an_async_core_handler_enqueues_is_run_too(async_session: AsyncSession) -> None:
    registry = TaskRegistry()

    @registry.task(queue="shop", core=True)
    async def order(connection: AsyncConnection) -> None:
        await anote.enqueue(connection, note="next")

    await order.enqueue(async_session)
    (await adrain(async_session, registry)).check()

    assert len((await adrain(async_session, core)).check().done) == 1
