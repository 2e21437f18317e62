"""What a worker does becomes counters, and nothing secret becomes a label."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sa_jobqueue import Backoff, JobSession, RejectJob, Swept, TaskRegistry, current_job
from sa_jobqueue.observe import (
    HeartbeatFailed,
    LeaseWasLost,
    Outage,
    Recovered,
    RunEnded,
    RunUnrecorded,
    SweepDone,
    log_event,
)
from sa_jobqueue.observe.prometheus import PrometheusSubscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import ClaimedJob


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def subscriber(registry: CollectorRegistry) -> PrometheusSubscriber:
    return PrometheusSubscriber(registry)


def test_the_runs_of_a_real_worker_are_counted_by_outcome(
    session: Session, work: Callable[..., None], registry: CollectorRegistry, subscriber: PrometheusSubscriber
) -> None:
    tasks = TaskRegistry()

    @tasks.task(queue="shop", backoff=Backoff(base=0.001, jitter=0), max_attempts=2, dedup_key=lambda kind: kind)
    def book(_session: Session, kind: str) -> None:
        if kind == "bad":
            raise ValueError
        if kind == "worse":
            raise RejectJob

    for kind in ("good", "good", "bad", "worse"):
        book.enqueue(session, kind=kind)
    session.commit()
    work(tasks, subscriber)

    counts = {
        sample.labels["outcome"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "sa_jobqueue_runs_total"
    }
    assert counts == {"done": 1, "duplicate": 1, "retried": 1, "dead": 2}
    labels = {"queue": "shop", "task": "book"}
    assert registry.get_sample_value("sa_jobqueue_run_seconds_count", labels) == 4


@pytest.mark.parametrize(
    ("event", "metric", "labels"),
    [
        (lambda job: LeaseWasLost("w", job(), 1.0), "lost_leases", {"queue": "shop", "task": "book"}),
        (lambda job: RunUnrecorded("w", job(), 1.0, OSError()), "unrecorded_runs", {"queue": "shop", "task": "book"}),
        (lambda _: SweepDone("w", "shop", Swept(requeued=1)), "requeued", {"queue": "shop"}),
        (lambda _: SweepDone("w", "shop", Swept(dead=1)), "expired_dead", {"queue": "shop"}),
        (lambda _: Outage("w", OSError()), "outages", {}),
        (lambda _: HeartbeatFailed("w", OSError()), "heartbeat_failures", {}),
    ],
    ids=["lost lease", "unrecorded run", "re-queue", "death by expiry", "outage", "heartbeat failure"],
)
def test_each_mishap_has_its_counter(
    event: Callable[..., Any],
    metric: str,
    labels: dict[str, str],
    job: Callable[..., ClaimedJob],
    registry: CollectorRegistry,
    subscriber: PrometheusSubscriber,
) -> None:
    subscriber(event(job))

    assert registry.get_sample_value(f"sa_jobqueue_{metric}_total", labels) == 1


def test_an_event_without_a_metric_is_no_error(subscriber: PrometheusSubscriber) -> None:
    subscriber(Recovered("w"))


def test_neither_arguments_nor_error_texts_are_exposed(
    job: Callable[..., ClaimedJob], registry: CollectorRegistry, subscriber: PrometheusSubscriber
) -> None:
    secret = job(args={"password": "S3CRET"}, headers={"token": "S3CRET"})

    subscriber(RunEnded("w", secret, "dead", 0.1, ValueError("S3CRET")))

    assert b"S3CRET" not in generate_latest(registry)


def commits_and_closes(session: Session) -> None:
    JobSession(session).ack(current_job())
    session.commit()
    session.close()


def raises(session: Session) -> None:
    session.connection()
    raise ValueError


def expunges_everything(session: Session) -> None:
    session.expunge_all()


@pytest.mark.parametrize(
    ("handler", "outcome"),
    [(commits_and_closes, "done"), (raises, "dead"), (expunges_everything, "done")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_whatever_a_handler_does_to_its_session_log_and_metrics_know_its_job(
    handler: Callable[[Session], None],
    outcome: str,
    session: Session,
    work: Callable[..., None],
    registry: CollectorRegistry,
    subscriber: PrometheusSubscriber,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks = TaskRegistry()
    task = tasks.task(name="book", queue="shop", max_attempts=1)(handler)
    job = task.enqueue(session)
    session.commit()
    caplog.set_level(logging.DEBUG, "sa_jobqueue")
    work(tasks, subscriber, log_event)

    labels = {"queue": "shop", "task": "book", "outcome": outcome}
    assert registry.get_sample_value("sa_jobqueue_runs_total", labels) == 1
    told = f"job {job.id} book queue shop attempt 1/1 token 1"
    assert [line for line in caplog.messages if told in line and outcome in line]
