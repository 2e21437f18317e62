"""A scrape tells what is in the queues from a sample, quickly, also while the database is down."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from sa_jobqueue import JobSession, QueueStats
from sa_jobqueue.observe.prometheus import QueueCollector
from sa_jobqueue.testing import factories_for
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy.orm import sessionmaker as session_factory


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def read(sessionmaker: session_factory[Session]) -> Callable[[], Sequence[QueueStats]]:
    def stats() -> Sequence[QueueStats]:
        with sessionmaker() as session:
            return JobSession(session).stats()

    return stats


def value(registry: CollectorRegistry, name: str, queue: str | None = None) -> float | None:
    return registry.get_sample_value(f"sa_jobqueue_{name}", {} if queue is None else {"queue": queue})


def test_states_are_counted_apart_and_lag_is_of_jobs_that_may_run(
    session: Session, registry: CollectorRegistry, read: Callable[[], Sequence[QueueStats]]
) -> None:
    factories = factories_for(session)
    for traits in ({}, {"scheduled": True}, {"scheduled": True}, {"claimed": True}):
        factories.job(**traits)
    factories.dead_letter()
    late: datetime = factories.job(expired=True, queue="late").visible_at
    session.commit()
    registry.register(QueueCollector(read))

    states = [value(registry, f"{state}_jobs", "default") for state in ("queued", "scheduled", "claimed", "dead")]

    assert (states, value(registry, "up")) == ([1, 2, 1, 1], 1)
    assert value(registry, "lag_seconds", "default") < 60
    assert value(registry, "lag_seconds", "late") == pytest.approx(3600, abs=60), late


def test_an_empty_queue_that_is_named_has_its_series(
    registry: CollectorRegistry, read: Callable[[], Sequence[QueueStats]]
) -> None:
    registry.register(QueueCollector(read, queues=["shop"]))

    assert (value(registry, "lag_seconds", "shop"), value(registry, "queued_jobs", "shop")) == (0, 0)


def test_a_queue_that_was_seen_keeps_its_series_when_it_is_empty(registry: CollectorRegistry) -> None:
    answers = [[QueueStats("shop", queued=3)], []]
    registry.register(QueueCollector(lambda: answers.pop(0), max_age=0))

    assert [value(registry, "queued_jobs", "shop") for _ in range(2)] == [3, 0]


def test_scrapes_within_the_age_of_a_sample_ask_the_database_once(registry: CollectorRegistry) -> None:
    asked = []
    registry.register(QueueCollector(lambda: asked.append(1) or [], max_age=3600))

    for _ in range(5):
        assert value(registry, "up") == 1

    assert asked == [1]


def test_registering_asks_nothing_even_in_a_registry_that_wants_descriptions() -> None:
    asked = []

    CollectorRegistry(auto_describe=True).register(QueueCollector(lambda: asked.append(1) or []))

    assert asked == []


def test_with_the_database_down_a_scrape_says_so_and_nothing_about_the_queues(
    registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = create_engine("postgresql+psycopg://nobody:S3CRET@127.0.0.1:1/none")

    def read() -> Sequence[QueueStats]:
        with Session(nobody) as session:
            return JobSession(session).stats()

    registry.register(QueueCollector(read, queues=["shop"], patience=10))

    with caplog.at_level(logging.WARNING):
        assert (value(registry, "up"), value(registry, "queued_jobs", "shop")) == (0, None)
    assert "OperationalError" in caplog.text
    assert "S3CRET" not in caplog.text


class Hanging:
    """Statistics that come when they are let go."""

    def __init__(self, asked_before: int = 0) -> None:
        self.asked, self.prompt, self.answer = 0, asked_before, threading.Event()

    def __call__(self) -> Sequence[QueueStats]:
        self.asked += 1
        if self.asked > self.prompt:
            assert self.answer.wait(30)
        return [QueueStats("shop", queued=self.asked)]


def test_a_database_that_hangs_holds_no_scrape_up_and_is_asked_once(registry: CollectorRegistry) -> None:
    read = Hanging()
    registry.register(QueueCollector(read, max_age=3600, patience=0.01))

    assert [value(registry, "up") for _ in range(3)] == [0, 0, 0]
    read.answer.set()
    wait_until(lambda: value(registry, "up") == 1, what="the sample that was under way")
    assert read.asked == 1


def test_while_the_database_is_slow_the_last_sample_serves_on(registry: CollectorRegistry) -> None:
    read = Hanging(asked_before=1)
    registry.register(QueueCollector(read, max_age=0, patience=0.01))
    wait_until(lambda: value(registry, "up") and read.asked == 2, what="a second question")

    assert value(registry, "queued_jobs", "shop") == 1
    read.answer.set()


def test_a_sample_that_is_too_old_serves_no_more(registry: CollectorRegistry) -> None:
    read = Hanging(asked_before=1)
    registry.register(QueueCollector(read, max_age=0, patience=0.01, stale_after=0.5))
    wait_until(lambda: value(registry, "up") and read.asked == 2, what="a second question")

    wait_until(lambda: value(registry, "up") == 0, what="the end of the sample")
    assert value(registry, "queued_jobs", "shop") is None
    read.answer.set()
