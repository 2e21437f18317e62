"""The pytest plugin, used by a small test suite of somebody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from sa_jobqueue import Job

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytest_plugins = ["pytester"]

CONFTEST = """
    import os
    import pytest
    from sqlalchemy import create_engine, select
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
    from sa_jobqueue import TaskRegistry

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    tasks = TaskRegistry()

    @tasks.task(queue="shop")
    def book(session, order_id):
        session.add(Order(id=order_id))

    @pytest.fixture(scope="session")
    def jobqueue_engine():
        engine = create_engine(os.environ["DATABASE_URL"])
        Base.metadata.create_all(engine)
        yield engine
        engine.dispose()

    @pytest.fixture(scope="session")
    def jobqueue_tasks():
        return tasks

    @pytest.fixture(scope="session")
    def jobqueue_tables():
        return [Order]
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, database_url: str, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("DATABASE_URL", database_url)
    # The plugin is asked for by name, so that these tests run where the package is not installed too.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    return pytester


PLUGIN = ("-p", "sa_jobqueue.testing.plugin")


def run(suite: pytest.Pytester, source: str) -> pytest.RunResult:
    suite.makepyfile(source)
    return suite.runpytest(*PLUGIN)


def test_jobs_are_drained_in_a_session_that_leaves_nothing_behind(suite: pytest.Pytester, engine: Engine) -> None:
    result = run(
        suite,
        """
        from conftest import Order, book

        def test_first(jobqueue_session, jobqueue_drain):
            book.enqueue(jobqueue_session, order_id=7)
            assert len(jobqueue_drain().done) == 1
            jobqueue_session.commit()
            assert jobqueue_session.get(Order, 7)

        def test_next(jobqueue_session, jobqueue_factories, jobqueue_drain):
            assert jobqueue_session.get(Order, 7) is None
            jobqueue_factories.job(queue="shop", task="book", args={"order_id": 7})
            jobqueue_session.commit()
            assert len(jobqueue_drain().done) == 1
            jobqueue_factories.job()
        """,
    )
    result.assert_outcomes(passed=2)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(Job)) == 0


def test_two_claims_at_once_are_told_apart_only_in_committed_mode(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        from sa_jobqueue import JobSession
        from sqlalchemy.orm import Session
        from conftest import book

        def claim_in_two_sessions(one, other):
            return JobSession(one).claim("shop"), JobSession(other).claim("shop")

        def test_on_one_connection_the_second_sees_what_the_first_has_not_committed(jobqueue_session):
            book.enqueue(jobqueue_session, order_id=1)
            connection = jobqueue_session.connection()
            with Session(connection, join_transaction_mode="create_savepoint") as other:
                first, second = claim_in_two_sessions(jobqueue_session, other)
            assert first and second is None

        def test_on_two_connections_the_second_skips_the_lock_of_the_first(jobqueue_committed):
            with jobqueue_committed.sessions.begin() as session:
                book.enqueue(session, order_id=1)
                book.enqueue(session, order_id=2)
            with jobqueue_committed.sessions() as one, jobqueue_committed.sessions() as other:
                first, second = claim_in_two_sessions(one, other)
            assert first.id != second.id

        def test_nothing_of_that_is_left(jobqueue_session):
            assert JobSession(jobqueue_session).claim("shop") is None
        """,
    )
    result.assert_outcomes(passed=3)


def test_committed_mode_runs_a_real_worker_and_empties_the_tables(suite: pytest.Pytester) -> None:
    result = run(
        suite,
        """
        import pytest
        from conftest import Order, book

        @pytest.mark.parametrize("time", [1, 2])
        def test_the_same_order_twice(time, jobqueue_committed):
            with jobqueue_committed.sessions.begin() as session:
                book.enqueue(session, order_id=7)
            jobqueue_committed.work()
            with jobqueue_committed.sessions() as session:
                assert session.get(Order, 7)
        """,
    )
    result.assert_outcomes(passed=2)


def test_committed_mode_refuses_a_database_that_is_in_use(suite: pytest.Pytester, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(Job.__table__.insert().values(task="precious", queue="shop"))

    result = run(suite, "def test_it(jobqueue_committed): pass")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*jobqueue_job: rows from before this test*"])
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(Job)) == 1


def test_a_fixture_that_only_the_application_can_give_is_asked_for(suite: pytest.Pytester) -> None:
    suite.makeconftest("")

    result = run(suite, "def test_it(jobqueue_drain): pass")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*define a fixture 'jobqueue_engine'*conftest.py*"])


def test_a_suite_without_factory_boy_loads_the_plugin_and_is_told_where_it_is_missing(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        factory="raise ImportError('as if it were not installed')",
        test_it="""
        from conftest import book

        def test_drains(jobqueue_session, jobqueue_drain):
            book.enqueue(jobqueue_session, order_id=7)
            assert len(jobqueue_drain().done) == 1

        def test_factories(jobqueue_factories):
            pass
        """,
    )

    result = suite.runpytest_subprocess(*PLUGIN, timeout=60)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*pip install 'sa-jobqueue[[]testing]'*"])
