"""A drain lends a Core handler the connection of the test's session, and the transaction on it stays the test's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, exc, func, insert, select, update
from sqlalchemy.orm import Session

from sa_jobqueue import ClaimedJob, CommitRefused, Job, JobQueueError, JobSession, LeaseLost, TaskRegistry, current_job
from sa_jobqueue.testing import drain
from tests.testing.shop import Order, notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

core = TaskRegistry()


@core.task(queue="shop", core=True, dedup_key=lambda note: f"note:{note}")
def note_down(connection: Connection, note: str) -> None:
    connection.execute(insert(Order).values(note=note))


@core.task(queue="shop", core=True)
def rename(connection: Connection, order_id: int, note: str) -> None:
    connection.execute(update(Order).where(Order.id == order_id).values(note=note))


@core.task(queue="shop", core=True)
def fail(connection: Connection) -> None:
    connection.execute(insert(Order).values(note="of the handler"))
    message = "no stock"
    raise RuntimeError(message)


def enqueued(session: Session, handler: Callable[..., Any], jobs: int = 1, **options: Any) -> TaskRegistry:
    """A registry with the handler as its only task, which has so many jobs."""
    registry = TaskRegistry()
    task = registry.task(name="handler", queue="shop", core=True, **options)(handler)
    for _ in range(jobs):
        task.enqueue(session)
    return registry


def add(note: str) -> Callable[[Connection], None]:
    return lambda connection: note_down(connection, note)


def add_and(end: str) -> Callable[[Connection], None]:
    def handler(connection: Connection) -> None:
        note_down(connection, "half")
        getattr(connection, end)()

    return handler


def test_a_core_handler_works_in_the_transaction_of_the_test(session: Session, engine: Engine) -> None:
    session.add(Order(note="of the test"))
    note_down.enqueue(session, "of the handler")

    drain(session, core).check()

    assert notes(session) == ["of the test", "of the handler"]
    with engine.connect() as other:
        assert other.scalar(select(func.count()).select_from(Order)) == 0


def test_a_core_handler_is_given_a_connection_and_knows_its_job(session: Session) -> None:
    seen: list[Any] = []

    report = drain(session, enqueued(session, lambda connection: seen.extend([type(connection), current_job()])))

    assert seen == [Connection, *report.check().done]


def test_a_core_handler_sees_what_the_test_has_only_added(session: Session) -> None:
    seen: list[str] = []
    registry = enqueued(session, lambda connection: seen.extend(connection.scalars(select(Order.note))))
    session.add(Order(note="added"))

    drain(session, registry).check()

    assert seen == ["added"]


def test_a_failing_core_handler_loses_its_own_changes_only(session: Session) -> None:
    session.add(Order(note="of the test"))
    fail.enqueue(session)

    report = drain(session, core)
    session.commit()

    row = session.scalars(select(Job)).one()
    assert notes(session) == ["of the test"]
    assert ([job.task for job in report.failed], row.status, row.attempt) == (["fail"], "scheduled", 1)
    assert "no stock" in row.errors[0]["error"]


def test_an_error_of_the_database_costs_the_test_nothing(session: Session) -> None:
    session.add(Order(note="of the test"))

    report = drain(session, enqueued(session, lambda connection: connection.exec_driver_sql("SELECT 1 / 0")))

    assert [type(error) for error in report.errors] == [exc.DataError]
    assert notes(session) == ["of the test"]


@pytest.mark.parametrize(
    ("end", "refusal", "said"),
    [
        ("commit", CommitRefused, "commits before its job is acknowledged"),
        ("close", CommitRefused, "closes its connection"),
        ("rollback", JobQueueError, r"\(handler\) rolls its connection back.*jobqueue_committed"),
    ],
)
def test_a_core_handler_that_ends_the_transaction_fails_and_the_test_keeps_its_rows(
    session: Session, end: str, refusal: type[Exception], said: str
) -> None:
    session.add(Order(note="of the test"))

    report = drain(session, enqueued(session, add_and(end)))
    session.commit()

    assert [(type(error), len(report.failed)) for error in report.errors] == [(refusal, 1)]
    with pytest.raises(refusal, match=said):
        raise report.errors[0]
    assert notes(session) == ["of the test"]


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_core_handler_that_swallows_a_refusal_fails_all_the_same(session: Session, end: str) -> None:
    def handler(connection: Connection) -> None:
        with pytest.raises(JobQueueError):
            getattr(connection, end)()
        note_down(connection, "all the same")

    report = drain(session, enqueued(session, handler))

    assert (len(report.failed), notes(session)) == (1, [])


def test_an_object_that_the_test_holds_is_read_anew_after_a_core_handler(session: Session) -> None:
    order = Order(note="old")
    session.add(order)
    session.flush()
    rename.enqueue(session, order.id, note="new")

    drain(session, core).check()

    assert order.note == "new"


def test_a_core_handler_may_undo_a_savepoint_of_its_own(session: Session) -> None:
    def try_twice(connection: Connection) -> None:
        with pytest.raises(RuntimeError), connection.begin_nested():
            fail(connection)
        with connection.begin_nested():
            note_down(connection, "second try")

    drain(session, enqueued(session, try_twice)).check()

    assert notes(session) == ["second try"]


@pytest.mark.parametrize(("fails", "left"), [(False, ["in a savepoint"]), (True, [])], ids=["done", "failed"])
def test_a_savepoint_that_a_core_handler_leaves_open_ends_with_it(
    session: Session, *, fails: bool, left: list[str]
) -> None:
    def leave(connection: Connection) -> None:
        connection.begin_nested()
        note_down(connection, "in a savepoint")
        if fails:
            raise RuntimeError

    drain(session, enqueued(session, leave))
    session.commit()

    assert notes(session) == left


@pytest.mark.parametrize("handler", [add("tea"), fail.function], ids=["done", "failed"])
def test_after_a_drain_the_connection_is_a_plain_one_again(shop: Engine, handler: Callable[..., Any]) -> None:
    with shop.connect() as connection, Session(connection) as session:
        drain(session, enqueued(session, handler))
        connection.rollback()
        note_down(connection, "plain")
        connection.commit()

        assert notes(session) == ["plain"]
    assert connection.closed


def test_of_two_core_jobs_with_one_dedup_key_the_second_is_a_duplicate(session: Session) -> None:
    for _ in range(2):
        note_down.enqueue(session, "tea")

    report = drain(session, core).check()

    assert (len(report.done), len(report.duplicates), notes(session)) == (1, 1, ["tea"])


def test_a_core_batch_is_called_with_each_job_alone(session: Session) -> None:
    sizes: list[int] = []

    def handler(connection: Connection, jobs: list[ClaimedJob]) -> None:
        sizes.append(len(jobs))
        note_down(connection, "of a batch")

    drain(session, enqueued(session, handler, jobs=2, batch=5)).check()

    assert (sizes, notes(session)) == ([1, 1], ["of a batch"] * 2)


def test_a_core_task_is_called_like_a_function_by_a_unit_test(session: Session) -> None:
    note_down(session.connection(), note="tea")

    assert notes(session) == ["tea"]


def test_a_core_task_is_enqueued_in_a_session_like_any_other(session: Session) -> None:
    answer = note_down.enqueue(session, note="tea")

    row = session.get_one(Job, answer.id)
    assert (row.task, row.args, row.dedup_key) == ("note_down", {"note": "tea"}, "note:tea")


def test_jobs_that_a_core_handler_enqueues_are_run_too(session: Session) -> None:
    registry = enqueued(session, lambda connection: note_down.enqueue(connection, "next"))

    drain(session, registry).check()
    report = drain(session, core).check()

    assert (len(report.done), notes(session)) == (1, ["next"])


def test_a_job_that_a_failing_core_handler_has_enqueued_is_not_there(session: Session) -> None:
    def handler(connection: Connection) -> None:
        note_down.enqueue(connection, "next")
        fail(connection)

    drain(session, enqueued(session, handler))

    assert session.scalars(select(Job.task)).all() == ["handler"]


def test_a_core_handler_whose_own_session_rolls_back_undoes_nothing_of_the_test(session: Session) -> None:
    def handler(connection: Connection) -> None:
        with Session(connection, join_transaction_mode="rollback_only") as inner:
            inner.add(Order(note="half"))
            inner.flush()
            inner.rollback()

    session.add(Order(note="of the test"))

    report = drain(session, enqueued(session, handler)).check()

    assert (len(report.done), notes(session)) == (1, ["of the test"])


def test_a_core_handler_that_acknowledges_by_itself_is_told_that_its_job_is_gone(session: Session) -> None:
    def handler(connection: Connection) -> None:
        with Session(connection, join_transaction_mode="rollback_only") as inner:
            JobSession(inner).ack(current_job())

    report = drain(session, enqueued(session, handler))

    assert [type(error) for error in report.errors] == [LeaseLost]
    assert session.scalars(select(Job.status)).all() == ["claimed"]
