"""The pure verdict: from how a run ended to what is recorded of its job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from sa_jobqueue import Backoff, ClaimedJob, CommitRefused, DuplicateEffect, LeaseLost, RejectJob, SnoozeJob
from sa_jobqueue.errors import ArgumentsMismatch, TimeLimitExceeded
from sa_jobqueue.worker.run import Condemned
from sa_jobqueue.worker.verdict import Ending, Verdict, is_aftermath, is_infrastructure, is_outage, judge, root_cause

_NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
_JOB = ClaimedJob(7, "work", "task", {}, {}, 0, 2, 5, 2, _NOON, _NOON, _NOON, "me", None, None)
_BACKOFF = Backoff(base=10, cap=600, jitter=0)


def verdict(error: BaseException | None, condemned: Condemned | None = None) -> Verdict:
    return judge(error, _JOB, _BACKOFF, condemned)


def of_state(
    sqlstate: str | None, *, lost: bool = False, kind: type[psycopg.Error] = psycopg.DatabaseError
) -> DBAPIError:
    """What SQLAlchemy raises for an error of the driver; ``lost``: the connection is gone with it."""
    original = kind("said the server")
    original.sqlstate = sqlstate
    return DBAPIError("SELECT 1", {}, original, connection_invalidated=lost)


def test_a_run_whose_transaction_committed_is_done_even_if_it_was_condemned_meanwhile() -> None:
    assert verdict(None).ending is Ending.DONE
    assert verdict(None, Condemned.TIME_LIMIT).ending is Ending.DONE


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ValueError("x"), Ending.FAIL),
        (SystemExit(3), Ending.FAIL),
        (KeyboardInterrupt(), Ending.FAIL),
        (GeneratorExit(), Ending.FAIL),
        (CommitRefused([7], "because"), Ending.FAIL),
        (LeaseLost([7], "ack"), Ending.LOST),
        (DuplicateEffect(7, "task", "key"), Ending.DUPLICATE),
        (RejectJob("no"), Ending.REJECT),
        (SnoozeJob(60), Ending.SNOOZE),
        (PoolTimeout("no connection"), Ending.SNOOZE),
    ],
    ids=repr,
)
def test_each_exception_of_a_handler_has_its_ending(error: BaseException, ending: Ending) -> None:
    said = verdict(error)
    assert (said.ending, said.error) == (ending, error)


@pytest.mark.parametrize(
    ("condemned", "ending"),
    [
        (Condemned.LEASE_LOST, Ending.LOST),
        (Condemned.STOPPED, Ending.RELEASE),
        (Condemned.TIME_LIMIT, Ending.FAIL),
    ],
)
def test_a_run_that_was_ended_from_outside_is_judged_by_the_reason_and_not_by_what_it_raised(
    condemned: Condemned, ending: Ending
) -> None:
    assert verdict(of_state("57014"), condemned).ending is ending


def test_a_run_over_its_time_limit_is_recorded_as_such() -> None:
    assert isinstance(verdict(of_state("57014"), Condemned.TIME_LIMIT).error, TimeLimitExceeded)


def test_a_failure_waits_for_the_backoff_of_its_attempt() -> None:
    assert verdict(ValueError()).delay == timedelta(seconds=20)


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
def test_a_snooze_waits_for_as_long_as_the_handler_said(delay: Any) -> None:
    assert verdict(SnoozeJob(delay)).delay == timedelta(seconds=90)


@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", None])
def test_a_snooze_for_a_delay_that_is_none_is_a_failure(delay: Any) -> None:
    assert verdict(SnoozeJob(delay)).ending is Ending.FAIL


def test_arguments_that_do_not_fit_fail_as_undecodable() -> None:
    said = verdict(ArgumentsMismatch("task", "missing n"))
    assert (said.ending, said.undecodable) == (Ending.FAIL, True)


@pytest.mark.parametrize(
    "sqlstate",
    ["40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "57P05", "08006", "53300", "53200"],
)
def test_these_errors_of_the_server_spend_no_attempt(sqlstate: str) -> None:
    assert is_infrastructure(of_state(sqlstate))


@pytest.mark.parametrize("sqlstate", ["23505", "22012", "42P01", "42501", "22P05", "25P02", "25006", "P0001", "XX000"])
def test_these_errors_of_the_server_are_the_handlers_own(sqlstate: str) -> None:
    assert not is_infrastructure(of_state(sqlstate))


@pytest.mark.parametrize("sqlstate", ["26000", "42P05"])
def test_a_prepared_statement_that_a_pooler_lost_spends_no_attempt_and_is_no_outage_to_wait_out(sqlstate: str) -> None:
    assert verdict(of_state(sqlstate)).ending is Ending.SNOOZE
    assert not is_outage(of_state(sqlstate))


def test_a_lost_connection_is_the_infrastructures_fault_whatever_was_said_last() -> None:
    assert is_infrastructure(of_state(None, lost=True))
    assert is_infrastructure(of_state("XX000", lost=True))


def test_a_connection_that_could_not_be_made_is_the_infrastructures_fault() -> None:
    assert is_infrastructure(of_state(None, kind=psycopg.OperationalError))
    assert not is_infrastructure(of_state(None, kind=psycopg.ProgrammingError))


def test_an_operational_error_of_another_database_is_the_handlers_own() -> None:
    assert not is_infrastructure(OperationalError("SELECT 1", {}, RuntimeError("no such table")))


def test_a_handler_that_idles_in_its_transaction_for_too_long_is_to_blame_itself() -> None:
    assert not is_infrastructure(of_state("25P03", lost=True))


def test_outages_in_a_row_are_met_with_longer_and_longer_pauses() -> None:
    first, later = (judge(of_state("57P01"), replace(_JOB, token=2 + given_back), _BACKOFF) for given_back in (0, 4))
    assert first.delay is not None
    assert later.delay is not None
    assert first.delay < timedelta(seconds=2) < later.delay < timedelta(seconds=31)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_a_conflict_is_tried_again_sooner_than_an_outage(sqlstate: str) -> None:
    first, later = (judge(of_state(sqlstate), replace(_JOB, token=2 + given_back), _BACKOFF) for given_back in (0, 4))
    assert first.delay is not None
    assert later.delay is not None
    assert first.delay < timedelta(seconds=0.5) < later.delay < timedelta(seconds=2)


def test_an_aborted_transaction_is_blamed_on_the_error_that_aborted_it() -> None:
    first = of_state("23505")
    assert root_cause(of_state("25P02"), first) is first
    assert root_cause(PendingRollbackError(f"rolled back. Original exception was: {first}"), first) is first


def test_an_error_that_stands_for_itself_is_blamed_as_it_is() -> None:
    own, survived = ValueError(), of_state("23505")
    assert root_cause(own, survived) is own
    assert root_cause(None, survived) is None


def test_a_flush_that_failed_by_itself_is_not_blamed_on_an_error_that_was_survived_before() -> None:
    pending = PendingRollbackError("rolled back. Original exception was: a mapper said no")
    assert root_cause(pending, of_state("23505")) is pending


def test_only_what_follows_an_aborted_transaction_is_aftermath() -> None:
    assert is_aftermath(of_state("25P02"))
    assert is_aftermath(PendingRollbackError(""))
    assert not is_aftermath(of_state("23505"))
    assert not is_aftermath(ValueError())
