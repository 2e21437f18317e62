"""Committed mode: real workers, and a database that is as empty afterwards as it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sa_jobqueue import DedupKey, Job, JobQueueError
from sa_jobqueue.observe import RunEnded
from sa_jobqueue.testing import Committed, empty_tables, factories_for, refuse_leftovers
from tests.testing.shop import Order, book, tasks

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def committed(shop: Engine) -> Committed:
    return Committed(shop, tasks, tables=(Order,))


def count(engine: Engine, model: type) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(model))


def test_a_real_worker_runs_what_was_committed(committed: Committed) -> None:
    with committed.sessions.begin() as session:
        book.enqueue(session, note="tea")

    events = committed.work(concurrency=2)

    assert [event.outcome for event in events if isinstance(event, RunEnded)] == ["done"]
    assert [count(committed.engine, model) for model in (Order, DedupKey, Job)] == [1, 1, 0]


@pytest.mark.parametrize("named", [Order, Order.__table__, "shop_order", "public.shop_order"])
def test_all_tables_are_emptied_however_they_are_named(named: object, committed: Committed) -> None:
    with committed.sessions.begin() as session:
        book.enqueue(session, note="tea")
    committed.work()

    empty_tables(committed.engine, [*committed.cleaned, named])

    assert [count(committed.engine, model) for model in (Order, DedupKey)] == [0, 0]
    refuse_leftovers(committed.engine, committed.cleaned)


def test_rows_from_before_the_test_are_not_deleted_but_refused(committed: Committed) -> None:
    with committed.sessions.begin() as session:
        factories_for(session).job()

    with pytest.raises(JobQueueError, match="jobqueue_job: rows from before this test"):
        refuse_leftovers(committed.engine, committed.cleaned)

    assert count(committed.engine, Job) == 1


def test_a_session_that_the_test_left_open_is_named_as_the_reason(
    committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sa_jobqueue.testing.committed._LOCK_TIMEOUT", "50ms")
    with Session(committed.engine) as session:
        session.add(Order(note="not committed"))
        session.flush()

        with pytest.raises(JobQueueError, match="still in a transaction"):
            empty_tables(committed.engine, committed.cleaned)
