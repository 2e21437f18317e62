"""assert_enqueued finds jobs in the caller's session, and says what is there if it finds none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import JobSession
from sa_jobqueue.testing import assert_enqueued, factories_for
from tests.testing.shop import book

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def test_the_matching_jobs_are_returned_oldest_first(session: Session) -> None:
    ids = [book.enqueue(session, note="tea").id, book.using(delay=60).enqueue(session, note="cake").id]

    jobs = assert_enqueued(session, book)

    assert [(job.id, job.status, job.args["note"]) for job in jobs] == [
        (ids[0], "queued", "tea"),
        (ids[1], "scheduled", "cake"),
    ]


@pytest.mark.parametrize("wanted", [{"task": "other"}, {"args": {"note": "cake"}}, {"args": {"x": 1}}, {"queue": "q"}])
def test_a_job_that_differs_in_task_arguments_or_queue_is_not_found(wanted: dict, session: Session) -> None:
    book.enqueue(session, note="tea")

    with pytest.raises(AssertionError, match="'book' in queue 'shop', queued"):
        assert_enqueued(session, **{"task": book, **wanted})


def test_other_arguments_than_those_named_do_not_matter(session: Session) -> None:
    JobSession(session).enqueue("pay", {"order": 7, "currency": "EUR"})

    assert assert_enqueued(session, "pay", args={"order": 7})


@pytest.mark.parametrize("times", [0, 1, 3])
def test_a_wrong_number_of_jobs_is_told(times: int, session: Session) -> None:
    for note in ("tea", "cake"):
        book.enqueue(session, note=note)

    with pytest.raises(AssertionError, match=f"expected {times} of task 'book', found 2"):
        assert_enqueued(session, book, times=times)


def test_no_job_at_all_can_be_what_is_expected(session: Session) -> None:
    assert assert_enqueued(session, book, times=0) == []


def test_a_job_that_is_claimed_is_not_enqueued_any_more(session: Session) -> None:
    factories_for(session).job(claimed=True, task="book")

    with pytest.raises(AssertionError, match="nothing is enqueued"):
        assert_enqueued(session, "book")


def test_arguments_are_printed_only_if_asked_for(session: Session) -> None:
    JobSession(session).enqueue("log_in", {"password": "S3CRET"})

    for show in (False, True):
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(session, "other", args={"password": "S3CRET"}, show_args=show)
        assert ("S3CRET" in str(caught.value)) == show
    assert "S3CRET" not in repr(assert_enqueued(session, "log_in"))
