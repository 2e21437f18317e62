"""The connection that the loop has at hand, so that a claim does not take one out of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from sa_jobqueue import Models
from sa_jobqueue.worker.control import Control
from sa_jobqueue.worker.line import line
from sa_jobqueue.worker.verdict import is_outage
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.behaviour.observer import Observer

NAME = "the loop"
OF_THE_LOOP = "SELECT pid FROM pg_stat_activity WHERE application_name = 'the loop'"


@pytest.fixture
def home(engine: Engine) -> Iterator[Engine]:
    home = create_engine(engine.url, connect_args={"application_name": NAME})
    yield home
    home.dispose()


def claims(control: Control) -> int:
    return len(control.claim("default", 1, {"t": 30.0}, None))


def test_claims_and_looks_follow_each_other_on_one_connection(home: Engine, observer: Observer) -> None:
    with line(home, 5) as own:
        control = Control(own, Models(), "w", job_log=False)
        claims(control)
        (first,) = observer.all(OF_THE_LOOP)
        with own.engine.connect():  # whoever else needs one gets another
            control.see(["default"])
            claims(control)
        assert first in observer.all(OF_THE_LOOP)
        assert own.engine.pool.checkedout() == 1  # type: ignore[attr-defined]  # of a QueuePool


def test_a_pool_of_one_connection_keeps_it_for_all(engine: Engine) -> None:
    home = create_engine(engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with line(home, 5) as own:
        control = Control(own, Models(), "w", job_log=False)
        claims(control)
        with control.begin() as connection:
            assert connection.scalar(text("SELECT 1")) == 1


def test_a_connection_that_broke_is_an_outage_once(home: Engine, observer: Observer) -> None:
    with line(home, 5) as own:
        control = Control(own, Models(), "w", job_log=False)
        claims(control)
        ((pid,),) = observer.all(OF_THE_LOOP)
        observer.all("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
        with pytest.raises(OperationalError) as error:
            claims(control)
        assert is_outage(error.value)
        assert claims(control) == 0


def test_it_ends_with_the_line(home: Engine, observer: Observer) -> None:
    with line(home, 5) as own:
        claims(Control(own, Models(), "w", job_log=False))
        assert observer.all(OF_THE_LOOP)
    wait_until(lambda: not observer.all(OF_THE_LOOP), what="the end of the session")
