"""The same application without a worker: claim, effect and ack in one transaction of its own sessions."""

from __future__ import annotations

import asyncio
import os

from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import AsyncJobSession, JobSession, LeaseLost
from tests.crash.app import LEASE, awrite, tell, write

_PATIENCE = 3
"""Errors after which a process of this service gives up."""


def serve() -> None:
    """Serve the queues until nothing in them can be claimed."""
    sessions = sessionmaker(create_engine(os.environ["DATABASE_URL"]))
    errors = 0
    for queue in os.environ["QUEUES"].split(","):
        busy = True
        while busy and errors < _PATIENCE:
            try:
                busy = _serve_one(sessions, queue)
            except (LeaseLost, DBAPIError) as error:
                tell(type(error).__name__, 0)
                errors += 1


def _serve_one(sessions: sessionmaker[Session], queue: str) -> bool:
    with sessions.begin() as session:
        jobs = JobSession(session, job_log=True)
        job = jobs.claim(queue, visibility_timeout=LEASE, worker=str(os.getpid()))
        if job is not None:
            write(session, **job.args)
            jobs.ack(job)
    return job is not None


def aserve() -> None:
    """The same with async sessions."""
    asyncio.run(_aserve())


async def _aserve() -> None:
    engine = create_async_engine(os.environ["DATABASE_URL"])
    errors = 0
    for queue in os.environ["QUEUES"].split(","):
        busy = True
        while busy and errors < _PATIENCE:
            try:
                busy = await _aserve_one(async_sessionmaker(engine), queue)
            except (LeaseLost, DBAPIError) as error:
                tell(type(error).__name__, 0)
                errors += 1
    await engine.dispose()


async def _aserve_one(sessions: async_sessionmaker[AsyncSession], queue: str) -> bool:
    async with sessions.begin() as session:
        jobs = AsyncJobSession(session, job_log=True)
        job = await jobs.claim(queue, visibility_timeout=LEASE, worker=str(os.getpid()))
        if job is not None:
            await awrite(session, **job.args)
            await jobs.ack(job)
    return job is not None
