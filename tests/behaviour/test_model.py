"""Any interleaving of operations from several owners, against a small model of the state machine (hypothesis)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from sa_jobqueue import ClaimedJob, JobSession, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

_LIVE = "SELECT id, status, attempt, token FROM jobqueue_job"
_DEAD = "SELECT job_id FROM jobqueue_dead_letter WHERE redriven_at IS NULL"
_EFFECTS = "SELECT job_id FROM jobqueue_dedup_key"
_EMPTY = "TRUNCATE jobqueue_job, jobqueue_dead_letter, jobqueue_dedup_key, jobqueue_job_log, jobqueue_rollup"


@dataclass
class Expected:
    """What the model knows of a job; ``token`` and ``attempt`` are what its row must show while it is alive."""

    max_attempts: int
    status: str = "queued"
    attempt: int = 0
    token: int = 0

    def owned_by(self, claim: ClaimedJob) -> bool:
        return self.status == "claimed" and self.token == claim.token


class Interleavings(RuleBasedStateMachine):
    """Every rule is one committed transaction; claims are kept for ever, so that stale owners act as well."""

    engine: Engine
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Expected] = {}
        with self.engine.begin() as connection:
            connection.execute(text(_EMPTY))

    def commit(self, operation: Callable[[JobSession], Any]) -> Any:
        with Session(self.engine) as session, session.begin():
            return operation(JobSession(session))

    def settle(self, claim: ClaimedJob, operation: Callable[[JobSession], Any], status: str, attempt: int) -> None:
        """An owner's operation changes its job; anybody else's is told that the lease is lost, and changes nothing."""
        job = self.jobs[claim.id]
        if not job.owned_by(claim):
            with pytest.raises(LeaseLost):
                self.commit(operation)
            return
        self.commit(operation)
        job.status, job.attempt = status, attempt

    @rule(max_attempts=st.integers(1, 3))
    def enqueue(self, max_attempts: int) -> None:
        made = self.commit(lambda jobs: jobs.enqueue("t", max_attempts=max_attempts))
        self.jobs[made.id] = Expected(max_attempts)

    @rule(target=claims, limit=st.integers(1, 3))
    def claim(self, limit: int) -> Any:
        taken = self.commit(lambda jobs: jobs.claim_many(limit=limit, visibility_timeout=3600))
        ready = [job for job in self.jobs.values() if job.status == "queued"]
        assert len(taken) == min(limit, len(ready))
        for claim in taken:
            job = self.jobs[claim.id]
            assert job.status == "queued"
            job.status, job.attempt, job.token = "claimed", job.attempt + 1, job.token + 1
            assert (claim.attempt, claim.token) == (job.attempt, job.token)
        return multiple(*taken)

    @rule(claim=claims)
    def heartbeat(self, claim: ClaimedJob) -> None:
        lost = self.commit(lambda jobs: jobs.heartbeat(claim, visibility_timeout=3600))
        assert lost == ([] if self.jobs[claim.id].owned_by(claim) else [claim])

    @rule(claim=claims)
    def ack(self, claim: ClaimedJob) -> None:
        self.settle(claim, lambda jobs: jobs.ack(claim), "done", claim.attempt)

    @rule(claim=claims)
    def fail(self, claim: ClaimedJob) -> None:
        status = "dead" if claim.last_attempt else "scheduled"
        self.settle(claim, lambda jobs: jobs.fail(claim, "x", retry_in=3600), status, claim.attempt)

    @rule(claim=claims)
    def release(self, claim: ClaimedJob) -> None:
        self.settle(claim, lambda jobs: jobs.release(claim), "queued", claim.attempt - 1)

    @rule(claim=claims)
    def snooze(self, claim: ClaimedJob) -> None:
        self.settle(claim, lambda jobs: jobs.snooze(claim, 3600), "scheduled", claim.attempt - 1)

    @rule(claim=consumes(claims))
    def reject(self, claim: ClaimedJob) -> None:
        self.settle(claim, lambda jobs: jobs.reject(claim, "x"), "dead", claim.attempt)

    @rule()
    def time_passes_and_a_sweep_comes(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE jobqueue_job SET visible_at = visible_at - interval '2 hours'"))
        swept = self.commit(lambda jobs: jobs.sweep())
        moved = [job for job in self.jobs.values() if job.status in {"scheduled", "claimed"}]
        assert swept.total == len(moved)
        for job in moved:
            lost = job.status == "claimed" and job.attempt >= job.max_attempts
            job.status = "dead" if lost else "queued"

    @rule()
    def redrive(self) -> None:
        redriven = self.commit(lambda jobs: jobs.redrive()).redriven
        assert set(redriven) == {job_id for job_id, job in self.jobs.items() if job.status == "dead"}
        for job_id in redriven:
            self.jobs[job_id].status, self.jobs[job_id].attempt = "queued", 0

    @rule(claim=claims, keep=st.booleans())
    def cancel(self, claim: ClaimedJob, keep: bool) -> None:  # noqa: FBT001 - hypothesis hands it over by name
        job = self.jobs[claim.id]
        alive = job.status in {"queued", "scheduled", "claimed"}
        assert self.commit(lambda jobs: jobs.cancel(claim.id, keep=keep)) == alive
        if alive:
            job.status = "dead" if keep else "gone"

    @invariant()
    def the_database_is_what_the_model_says(self) -> None:
        with self.engine.connect() as connection:
            live = {row.id: (row.status, row.attempt, row.token) for row in connection.execute(text(_LIVE))}
            dead = sorted(connection.execute(text(_DEAD)).scalars())
            effects = sorted(connection.execute(text(_EFFECTS)).scalars())
        alive = {"queued", "scheduled", "claimed"}
        assert live == {
            job_id: (job.status, job.attempt, job.token) for job_id, job in self.jobs.items() if job.status in alive
        }
        assert dead == sorted(job_id for job_id, job in self.jobs.items() if job.status == "dead")
        assert effects == sorted(job_id for job_id, job in self.jobs.items() if job.status == "done")


def test_any_interleaving_of_operations_leaves_what_the_state_table_says(database_url: str) -> None:
    engine = create_engine(database_url)
    machine = type("Machine", (Interleavings,), {"engine": engine})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    engine.dispose()
