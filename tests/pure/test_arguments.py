"""The arguments of a task, without a database."""

from __future__ import annotations

import pytest

from sa_jobqueue import TaskRegistry
from sa_jobqueue.errors import InvalidArgument


def test_an_argument_may_be_called_self() -> None:
    @TaskRegistry().task
    def mark(_session: object, self: int) -> None: ...

    assert mark.new_job(self=3).args == {"self": 3}


def test_arguments_by_position_and_of_any_name_are_stored_by_name() -> None:
    @TaskRegistry().task
    def mark(_session: object, first: int, **others: int) -> None: ...

    assert mark.new_job(1, second=2).args == {"first": 1, "second": 2}


def test_arguments_that_do_not_fit_are_refused_before_any_sql() -> None:
    @TaskRegistry().task
    def mark(_session: object, first: int) -> None: ...

    with pytest.raises(InvalidArgument, match="task 'mark': missing a required argument: 'first'"):
        mark.new_job()  # type: ignore[call-arg]  # the mistake


def test_the_jobs_of_a_batch_have_named_arguments_only() -> None:
    @TaskRegistry().task(batch=2)
    def mark(_session: object, jobs: list[object]) -> None: ...

    assert mark.new_job(any_name=1).args == {"any_name": 1}
    with pytest.raises(InvalidArgument, match="name each argument of the job"):
        mark.new_job(1)
