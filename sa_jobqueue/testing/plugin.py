"""The pytest plugin: fixtures named ``jobqueue_…`` that an application overrides or uses.

``jobqueue_engine`` and ``jobqueue_tasks`` are the application's to give; everything else follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from sa_jobqueue import testing

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from sa_jobqueue import Models, TaskRegistry
    from sa_jobqueue.testing import Committed, DrainReport, Factories


@pytest.fixture(scope="session")
def jobqueue_engine() -> Engine:
    """The engine of a test database that has the tables: override it in your ``conftest.py``."""
    _missing("jobqueue_engine", "the SQLAlchemy engine of your test database")


@pytest.fixture(scope="session")
def jobqueue_tasks() -> TaskRegistry:
    """Your task registry: override it in your ``conftest.py``."""
    _missing("jobqueue_tasks", "your TaskRegistry")


@pytest.fixture(scope="session")
def jobqueue_models() -> Models | None:
    """Your mapped classes for ``jobqueue_factories``; None: the ready-made ones. The others ask your registry."""
    return None


@pytest.fixture(scope="session")
def jobqueue_tables() -> Sequence[Any]:
    """Tables of your own (mapped classes, ``Table`` objects or names) that ``jobqueue_committed`` empties too."""
    return ()


@pytest.fixture
def jobqueue_session(jobqueue_engine: Engine) -> Iterator[Session]:
    """A session on one connection whose transaction is rolled back after the test, whatever the code commits.

    Override it with the session fixture that your suite has already. Nothing about concurrency can be tested with it.
    """
    from sqlalchemy.orm import Session  # noqa: PLC0415 (where the plugin is not used, it must cost nothing)

    with jobqueue_engine.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()


@pytest.fixture
def jobqueue_factories(jobqueue_session: Session, jobqueue_models: Models | None) -> Factories:
    """``JobFactory`` and its sisters, bound to ``jobqueue_session``."""
    return testing.factories_for(jobqueue_session, models=jobqueue_models)


@pytest.fixture
def jobqueue_drain(
    jobqueue_session: Session, jobqueue_tasks: TaskRegistry, jobqueue_models: Models | None
) -> Callable[..., DrainReport]:
    """A function that runs the enqueued jobs in ``jobqueue_session``; it takes the options of ``drain``."""

    def run(**options: Any) -> DrainReport:
        return testing.drain(jobqueue_session, jobqueue_tasks, **{"models": jobqueue_models, **options})

    return run


@pytest.fixture
def jobqueue_committed(
    jobqueue_engine: Engine,
    jobqueue_tasks: TaskRegistry,
    jobqueue_models: Models | None,
    jobqueue_tables: Sequence[Any],
) -> Iterator[Committed]:
    """Committed mode: sessions that really commit, and real workers; all tables are emptied after the test.

    Refuses a database that holds rows already, because it would empty that too.
    """
    committed = testing.Committed(
        jobqueue_engine, jobqueue_tasks, models=jobqueue_models, tables=tuple(jobqueue_tables)
    )
    testing.refuse_leftovers(jobqueue_engine, committed.cleaned)
    yield committed
    testing.empty_tables(jobqueue_engine, committed.cleaned)


def _missing(fixture: str, what: str) -> NoReturn:
    pytest.fail(
        f"sa_jobqueue's fixtures need {what}: define a fixture {fixture!r} with scope='session' in your conftest.py",
        pytrace=False,
    )
