"""Each row of the state table in ``states.py`` happens as it is written there, and there is a test for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sa_jobqueue.states import TRANSITIONS, State, Transition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer


def _name(transition: Transition) -> str:
    end = "dead letter" if transition.buried and transition.source else transition.target or "gone"
    start = "dead letter" if transition.buried and not transition.source else transition.source or "nothing"
    return f"{start} {transition.verb} {end}"


class Stage:
    """Brings a job into the source state of a transition, then does what its verb says."""

    def __init__(self, queue: Client, observer: Observer) -> None:
        self.queue, self.observer = queue, observer
        self.job_id: int | None = None
        self.claimed: Any = None

    def prepare(self, transition: Transition) -> None:
        last = transition.buried and transition.verb in {"fail", "expire"}
        if transition.source is None and not transition.buried:
            return
        delay = 60 if transition.source is State.SCHEDULED else None
        self.job_id = self.queue.enqueue("t", delay=delay, max_attempts=1 if last else 5).id
        if transition.source is State.CLAIMED or transition.source is None:
            self.claimed = self.queue.claim()
        if transition.source is None:
            self.queue.reject(self.claimed, "bad")
        self.queue.commit()

    def enact(self, transition: Transition) -> None:
        verbs: dict[str, Callable[[], object]] = {
            "enqueue": lambda: self.enqueue(60 if transition.target is State.SCHEDULED else None),
            "promote": self.sweep,
            "claim": lambda: self.claim(due=transition.source is not State.QUEUED),
            "heartbeat": lambda: self.queue.heartbeat(self.claimed),
            "re-queue": self.sweep,
            "release": lambda: self.queue.release(self.claimed),
            "fail": lambda: self.queue.fail(self.claimed, "no luck"),
            "snooze": lambda: self.queue.snooze(self.claimed, 60),
            "ack": lambda: self.queue.ack(self.claimed),
            "expire": self.sweep,
            "reject": lambda: self.queue.reject(self.claimed, "bad"),
            "redrive": lambda: self.queue.redrive(self.job_id),
            "cancel": lambda: self.queue.cancel(self.job_id),
        }
        verbs[transition.verb]()
        self.queue.commit()

    def enqueue(self, delay: float | None) -> None:
        self.job_id = self.queue.enqueue("t", delay=delay).id

    def sweep(self) -> None:
        self.observer.make_due(self.job_id)
        self.queue.sweep()

    def claim(self, *, due: bool) -> None:
        if due:
            self.observer.make_due(self.job_id)
        self.claimed = self.queue.claim()


@pytest.mark.parametrize("transition", TRANSITIONS, ids=_name)
def test_the_state_table_says_what_happens(transition: Transition, queue: Client, observer: Observer) -> None:
    stage = Stage(queue, observer)
    stage.prepare(transition)
    assert observer.state(stage.job_id) == transition.source

    stage.enact(transition)

    assert observer.state(stage.job_id) == transition.target
    open_graves = [row for row in observer.dead(stage.job_id) if row.redriven_at is None]
    assert len(open_graves) == (transition.buried and transition.target is None)


@pytest.mark.parametrize(
    ("verb", "attempts", "tokens"),
    [("claim", 2, 2), ("heartbeat", 1, 1), ("re-queue", 1, 1), ("release", 0, 1), ("fail", 1, 1), ("snooze", 0, 1)],
)
def test_only_a_claim_counts_an_attempt_and_the_token_never_shrinks(
    verb: str, attempts: int, tokens: int, queue: Client, observer: Observer
) -> None:
    transition = next(row for row in TRANSITIONS if row.verb == verb and row.source is State.CLAIMED)
    stage = Stage(queue, observer)
    stage.prepare(transition)

    stage.enact(transition)

    job = observer.job(stage.job_id)
    assert (job.attempt, job.token) == (attempts, tokens)


def test_a_job_that_leaves_its_claim_belongs_to_nobody(queue: Client, observer: Observer) -> None:
    for leave in (queue.release, lambda job: queue.fail(job, "x"), lambda job: queue.snooze(job, 1)):
        job_id = queue.enqueue("t").id
        leave(queue.claim(worker="w"))
        queue.commit()
        row = observer.job(job_id)
        assert (row.claimed_at, row.claimed_by) == (None, None)
