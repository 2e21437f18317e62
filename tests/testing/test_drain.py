"""A drain runs jobs in the developer's own session, and what it says of them is what a worker would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select

from sa_jobqueue import (
    CommitRefused,
    DeadLetter,
    InvalidArgument,
    Job,
    JobQueueError,
    JobSession,
    TaskRegistry,
    current_job,
)
from sa_jobqueue.testing import drain, factories_for
from tests.testing.shop import (
    Order,
    abook,
    async_tasks,
    book,
    fail,
    keep,
    notes,
    order_chain,
    reject,
    snooze,
    stumble,
    tasks,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session


def registry_of(handler: Callable[..., Any]) -> TaskRegistry:
    registry = TaskRegistry()
    registry.task(name="handler", queue="shop")(handler)
    return registry


def test_a_drain_runs_what_the_session_enqueued_and_nobody_else_sees_it(session: Session, engine: Engine) -> None:
    book.enqueue(session, note="tea")

    report = drain(session, tasks)

    assert ([job.task for job in report.done], notes(session)) == (["book"], ["tea"])
    with engine.connect() as other:
        assert other.scalar(select(func.count()).select_from(Order)) == 0


def test_a_drain_flushes_the_jobs_that_a_test_only_added(session: Session) -> None:
    session.add(Job(task="book", queue="shop", args={"note": "added"}))

    assert len(drain(session, tasks).done) == 1


def test_a_handler_gets_the_arguments_that_the_database_returns(session: Session) -> None:
    value = {"n": [1, 2.5, None], "ü": "\U0001f375"}
    keep.enqueue(session, value)
    value["n"] = "changed after the enqueue"

    drain(session, tasks)

    assert session.info["kept"] == {"n": [1, 2.5, None], "ü": "\U0001f375"}


def test_the_current_job_is_known_in_the_handler_and_nowhere_else(session: Session) -> None:
    seen = []
    JobSession(session).enqueue("handler", queue="shop")

    report = drain(session, registry_of(lambda _session: seen.append(current_job())))

    assert seen == report.done
    with pytest.raises(JobQueueError):
        current_job()


def test_a_failing_handler_loses_its_own_changes_only(session: Session) -> None:
    session.add(Order(note="of the test"))
    fail.enqueue(session, note="of the handler")

    report = drain(session, tasks)

    row = session.scalars(select(Job)).one()
    assert notes(session) == ["of the test"]
    assert ([job.task for job in report.failed], row.status, row.attempt) == (["fail"], "scheduled", 1)
    assert "no stock" in row.errors[0]["error"]


def test_the_session_may_commit_after_a_drain_with_failures(session: Session) -> None:
    fail.enqueue(session, note="x")
    book.enqueue(session, note="tea")
    drain(session, tasks)

    session.commit()

    assert notes(session) == ["tea"]


def test_the_session_may_commit_though_a_run_was_undone_after_its_ack(session: Session) -> None:
    def ack_and_fail(session: Session) -> None:
        JobSession(session).ack(current_job())
        raise RuntimeError

    JobSession(session).enqueue("handler", queue="shop")
    report = drain(session, registry_of(ack_and_fail))

    session.commit()

    assert len(report.failed) == 1


def test_with_retries_a_job_fails_without_waiting_until_it_is_dead(session: Session) -> None:
    fail.enqueue(session, note="x")

    report = drain(session, tasks, retries=True)

    assert ([job.attempt for job in report.failed], [job.attempt for job in report.dead]) == ([1, 2], [3])
    assert session.scalars(select(DeadLetter.reason)).all() == ["failed"]


def test_with_retries_a_job_that_stumbled_is_done(session: Session) -> None:
    stumble.enqueue(session, note="at last")

    report = drain(session, tasks, retries=True)

    assert ([run.outcome for run in report.runs], notes(session)) == (["retried", "done"], ["at last"])
    assert session.scalar(select(func.count()).select_from(Job)) == 0


def test_a_handler_that_commits_fails_as_under_a_worker(session: Session) -> None:
    def commit(session: Session) -> None:
        session.add(Order(note="half"))
        session.commit()

    JobSession(session).enqueue("handler", queue="shop")

    report = drain(session, registry_of(commit))

    assert (type(report.errors[0]), notes(session)) == (CommitRefused, [])


def test_a_handler_that_rolls_its_session_back_is_told_to_use_a_real_worker(session: Session) -> None:
    JobSession(session).enqueue("handler", queue="shop")

    with pytest.raises(JobQueueError, match="rolled back or closed its session"):
        drain(session, registry_of(lambda session: session.rollback()))


def test_a_handler_may_undo_a_savepoint_of_its_own(session: Session) -> None:
    def try_twice(session: Session) -> None:
        session.begin_nested().rollback()
        with session.begin_nested():
            session.add(Order(note="second try"))

    JobSession(session).enqueue("handler", queue="shop")

    drain(session, registry_of(try_twice)).check()

    assert notes(session) == ["second try"]


def test_of_two_jobs_with_one_dedup_key_the_second_is_a_duplicate(session: Session) -> None:
    book.enqueue(session, note="tea")
    book.enqueue(session, note="tea")
    first = drain(session, tasks)
    book.enqueue(session, note="tea")

    again = drain(session, tasks)

    assert [len(first.done), len(first.duplicates), len(again.duplicates)] == [1, 1, 1]
    assert (notes(session), first.errors, again.errors) == (["tea"], [], [])


def test_a_unique_key_is_free_again_after_its_job_ran(session: Session) -> None:
    unique = keep.using(unique_key="only one")
    answers = []
    for value in (1, 2):
        answers.append(unique.enqueue(session, value).created)
        drain(session, tasks)

    assert (answers, session.info["kept"]) == ([True, True], 2)


def test_jobs_that_handlers_enqueue_are_run_too(session: Session) -> None:
    order_chain.enqueue(session, 3)

    drain(session, tasks)

    assert notes(session) == ["link 3", "link 2", "link 1"]


def test_a_job_that_enqueues_itself_for_ever_is_named(session: Session) -> None:
    order_chain.enqueue(session, 100)

    with pytest.raises(JobQueueError, match=r"gave up after 5 runs.*'order_chain'"):
        drain(session, tasks, max_runs=5)


def test_a_scheduled_job_runs_only_if_asked_for(session: Session) -> None:
    book.using(delay=3600).enqueue(session, note="later")

    assert drain(session, tasks).runs == ()
    assert len(drain(session, tasks, scheduled=True).done) == 1


def test_a_drain_serves_only_the_queue_that_it_is_given(session: Session) -> None:
    book.enqueue(session, note="shop")
    book.using(queue="other").enqueue(session, note="other")

    drain(session, tasks, queue="other")

    assert notes(session) == ["other"]


def test_queued_jobs_of_unregistered_tasks_are_left_and_named(session: Session) -> None:
    JobSession(session).enqueue("forgotten", queue="shop")

    report = drain(session, tasks)

    assert (report.runs, report.unknown) == ((), ("forgotten",))


def test_a_job_whose_worker_was_lost_is_run_and_one_without_attempts_left_dies(session: Session) -> None:
    job = factories_for(session).job
    job(expired=True, queue="shop", task="keep", args={"value": 1})
    job(expired=True, queue="shop", task="keep", args={"value": 2}, max_attempts=1)

    report = drain(session, tasks)

    assert ([done.attempt for done in report.done], report.swept.requeued, report.swept.dead) == ([2], 1, 1)


def test_rejected_and_snoozed_jobs_are_reported_as_such(session: Session) -> None:
    for task in (reject, snooze):
        task.enqueue(session)

    report = drain(session, tasks)

    assert ([job.task for job in report.dead], [job.task for job in report.snoozed]) == (["reject"], ["snooze"])


def test_arguments_that_do_not_fit_the_handler_are_a_failure(session: Session) -> None:
    JobSession(session).enqueue("book", {"wrong": 1}, queue="shop")

    assert len(drain(session, tasks).failed) == 1


def test_check_raises_what_the_handlers_raised(session: Session) -> None:
    fail.enqueue(session, note="x")

    with pytest.raises(BaseExceptionGroup) as caught:
        drain(session, tasks).check()

    assert caught.group_contains(RuntimeError, match="no stock")


def test_a_skip_inside_a_handler_ends_the_test_and_not_the_job(session: Session) -> None:
    JobSession(session).enqueue("handler", queue="shop")

    with pytest.raises(pytest.skip.Exception):
        drain(session, registry_of(lambda _session: pytest.skip("not here")))


def test_a_coroutine_handler_is_sent_to_adrain(session: Session) -> None:
    abook.new_job(note="x")
    JobSession(session).enqueue("abook", {"note": "x"}, queue="shop")

    with pytest.raises(InvalidArgument, match="await adrain"):
        drain(session, async_tasks)
