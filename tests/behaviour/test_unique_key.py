"""A live job holds its ``unique_key``: who enqueues the key again gets that job."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from sa_jobqueue import NewJob, State
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def _leave_queued(_queue: Client) -> None:
    pass


def _claim(queue: Client) -> None:
    queue.claim()


def _retry(queue: Client) -> None:
    queue.fail(queue.claim(), "x")


def _finish(queue: Client) -> None:
    queue.ack(queue.claim())


def _bury(queue: Client) -> None:
    queue.reject(queue.claim(), "x")


def _cancel(queue: Client) -> None:
    queue.cancel(queue.claim().id)


@pytest.mark.parametrize(
    ("live", "state"), [(_leave_queued, State.QUEUED), (_claim, State.CLAIMED), (_retry, State.SCHEDULED)]
)
def test_a_live_job_holds_its_key_and_the_answer_says_who_and_in_which_state(
    live: Callable[[Client], None], state: State, queue: Client
) -> None:
    first = queue.enqueue("t", unique_key="k")
    live(queue)
    again = queue.enqueue("t", unique_key="k")
    assert (again.id, again.created, again.status) == (first.id, False, state)


@pytest.mark.parametrize("end", [_finish, _bury, _cancel])
def test_a_job_that_is_over_gives_its_key_back(end: Callable[[Client], None], queue: Client) -> None:
    first = queue.enqueue("t", unique_key="k")
    end(queue)
    again = queue.enqueue("t", unique_key="k")
    assert again.created
    assert again.id != first.id


def test_a_duplicate_in_a_bulk_costs_only_itself(queue: Client, observer: Observer) -> None:
    held = queue.enqueue("t", unique_key="held")
    keys = ["a", "held", None, "a", "b"]
    made = queue.enqueue_many(NewJob("t", unique_key=key) for key in keys)
    queue.execute("INSERT INTO effect (name) VALUES ('still usable')")
    queue.commit()

    assert [job.created for job in made] == [True, False, True, False, True]
    assert (made[1].id, made[3].id) == (held.id, made[0].id)
    assert observer.count("queued") == 4
    assert observer.effects() == ["still usable"]


def test_of_twenty_callers_at_once_one_makes_the_job_and_all_get_it(
    clients: Callable[..., Client], observer: Observer
) -> None:
    callers = [clients() for _ in range(20)]

    def enqueue(caller: Client) -> tuple[int, bool]:
        made = caller.enqueue("t", unique_key="k")
        caller.commit()
        return made.id, made.created

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(enqueue, callers))
    assert sorted(created for _, created in answers) == [False] * 19 + [True]
    assert {job_id for job_id, _ in answers} == {observer.scalar("SELECT id FROM jobqueue_job")}


def test_refused_enqueues_leave_one_row_and_bigint_sequences(queue: Client, observer: Observer) -> None:
    made = {queue.enqueue("t", unique_key="k").id for _ in range(200)}
    queue.commit()

    assert len(made) == observer.count("queued") == 1
    limits = observer.all("SELECT sequencename, max_value FROM pg_sequences WHERE sequencename LIKE 'jobqueue%'")
    assert limits
    assert {row.max_value for row in limits} == {2**63 - 1}


def test_a_key_that_its_holder_gives_back_meanwhile_is_taken_without_a_deadlock(
    queue: Client, other: Client, observer: Observer
) -> None:
    queue.enqueue("t", unique_key="a")
    queue.commit()
    bulk = [NewJob("t", unique_key="a"), NewJob("t", unique_key="z")]

    def enqueue_elsewhere() -> list[bool]:
        made = other.enqueue_many(bulk)
        other.commit()
        return [job.created for job in made]

    with ThreadPoolExecutor(1) as pool:
        rival: list[Future[list[bool]]] = []

        def holder_finishes_and_a_rival_comes(_connection: object, _cursor: object, sql: str, *_: object) -> None:
            if sql.startswith("INSERT") and not rival:
                observer.all("DELETE FROM jobqueue_job WHERE unique_key = 'a'")
                rival.append(pool.submit(enqueue_elsewhere))
                wait_until(observer.lock_waits, what="the rival, which took a, to wait for z")

        queue.run(
            lambda session: event.listen(
                session.connection(), "after_cursor_execute", holder_finishes_and_a_rival_comes
            )
        )
        made = [job.created for job in queue.enqueue_many(bulk)]
        queue.commit()
        assert (made, rival[0].result(timeout=10)) == ([False, False], [True, True])
