"""The drain of an ``AsyncSession`` runs coroutine functions and plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sa_jobqueue import CommitRefused
from sa_jobqueue.testing import adrain, assert_enqueued
from tests.testing.shop import abook, afail, async_tasks, book_in_sync, notes

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession


async def test_an_async_drain_runs_both_kinds_of_handlers(async_session: AsyncSession) -> None:
    await abook.enqueue(async_session, note="tea")
    await book_in_sync.enqueue(async_session, note="cake")

    report = await adrain(async_session, async_tasks)

    assert len(report.check().done) == 2
    assert await async_session.run_sync(notes) == ["tea by job abook", "cake"]


async def test_an_async_duplicate_is_suppressed(async_session: AsyncSession) -> None:
    for _ in range(2):
        await abook.enqueue(async_session, note="tea")

    report = await adrain(async_session, async_tasks)

    assert (len(report.done), len(report.duplicates)) == (1, 1)
    assert len(await async_session.run_sync(notes)) == 1


async def test_an_async_handler_that_commits_fails_and_its_changes_are_undone(async_session: AsyncSession) -> None:
    await afail.enqueue(async_session)

    report = await adrain(async_session, async_tasks, retries=True)
    await async_session.commit()

    assert ({type(error) for error in report.errors}, len(report.dead)) == ({CommitRefused}, 1)
    assert await async_session.run_sync(notes) == []


async def test_enqueued_jobs_are_found_from_an_async_session(async_session: AsyncSession) -> None:
    await abook.enqueue(async_session, note="tea")

    [job] = await async_session.run_sync(assert_enqueued, abook, args={"note": "tea"})

    assert job.queue == "shop"
