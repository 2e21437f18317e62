from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import sessionmaker as session_factory

from tests.behaviour.business import Base
from tests.poolers.pgbouncer import find_pgbouncer, pgbouncer
from tests.proofs.crew import Crew, Events
from tests.proofs.fixtures import *  # noqa: F403 - fixtures that several folders share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import TaskRegistry
    from tests.database import Databases

UNPREPARED = {"prepare_threshold": None}
"""The documented engine argument."""


@pytest.fixture(scope="session")
def pooler(databases: Databases) -> Iterator[URL]:
    """The address of a pgbouncer in front of the suite's server; two server connections for each database."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("there is no pgbouncer on this machine (apt-get install pgbouncer)")
    with pgbouncer(program, databases.url) as at:
        yield at


@pytest.fixture
def pooled_url(pooler: URL, database_url: str) -> str:
    """The test's database, through the pooler."""
    return pooler.set(database=make_url(database_url).database).render_as_string(hide_password=False)


@pytest.fixture
def pooled_engine(pooled_url: str, engine: Engine) -> Iterator[Engine]:
    """An engine through the pooler as the documentation says, on a database that has the tables of the business too."""
    Base.metadata.create_all(engine)
    pooled = create_engine(pooled_url, pool_size=20, connect_args=UNPREPARED)
    yield pooled
    pooled.dispose()


@pytest.fixture
def pooled(pooled_engine: Engine) -> session_factory[Session]:
    return session_factory(pooled_engine)


@pytest.fixture
def crew(tasks: TaskRegistry, pooled_engine: Engine, events: Events) -> Iterator[Crew]:
    """Workers that know the database through the pooler only."""
    crew = Crew(tasks, pooled_engine, events)
    yield crew
    crew.close()
