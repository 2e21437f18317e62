"""The SQL of every statement is kept in ``tests/sql``, so that a change of SQL is reviewed as SQL.

After a wanted change: ``SA_JOBQUEUE_WRITE_GOLDEN=1 pytest tests/test_statements_golden.py``, then read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.dialects.postgresql import psycopg

from sa_jobqueue import Models
from sa_jobqueue.statements import claim, enqueue, lease, look, operate, prune, rollup, settle, sweep, tune
from sa_jobqueue.states import DeathReason, State
from tests.sql_layout import laid_out

if TYPE_CHECKING:
    from sqlalchemy import Executable

FOLDER = Path(__file__).parent / "sql"
MODELS = Models()

STATEMENTS: dict[str, Executable] = {
    "enqueue": enqueue.enqueue(MODELS, unique=False),
    "enqueue_many": enqueue.enqueue_many(MODELS, unique=False),
    "enqueue_many_unique": enqueue.enqueue_many(MODELS, unique=True),
    "reserve_ids": enqueue.reserve_ids(MODELS),
    "holders": enqueue.holders(MODELS),
    "claim_ready": claim.claim_ready(MODELS),
    "claim_ready_behind": claim.claim_ready(MODELS, behind=True),
    "claim_due": claim.claim_due(MODELS),
    "heartbeat": lease.heartbeat(MODELS),
    "unanswered": lease.unanswered(MODELS),
    "once": settle.once(MODELS),
    "ack": settle.ack(MODELS),
    "ack_natural_keys_logged": settle.ack(MODELS, natural_keys_only=True, log=True),
    "ack_many": settle.ack_many(MODELS),
    "ack_or_error": settle.ack_or_error(MODELS),
    "ack_or_error_natural_keys_logged": settle.ack_or_error(MODELS, natural_keys_only=True, log=True),
    "suppress": settle.suppress(MODELS),
    "retry": settle.retry(MODELS),
    "retry_logged": settle.retry(MODELS, log=True),
    "snooze": settle.snooze(MODELS),
    "release_many": settle.release_many(MODELS),
    "release": settle.release(MODELS),
    "bury": settle.bury(MODELS, DeathReason.FAILED),
    "look": look.look(MODELS),
    "sweep": sweep.sweep(MODELS),
    "queues_with_due_rows": sweep.queues_with_due_rows(MODELS),
    "redrive": operate.redrive(MODELS),
    "cancel": operate.cancel(MODELS, keep=True),
    "cancel_gone": operate.cancel(MODELS, keep=False),
    "live": operate.live(MODELS),
    "buried": operate.buried(MODELS),
    "rollup_add": rollup.add(MODELS),
    "rollup_window": rollup.window(MODELS),
    **{f"prune_{what}": build(MODELS) for what, build in (prune.BY_PAGES | prune.BY_INDEX).items()},
    "tune_clock": tune.clock(MODELS),
    "tune_counts": tune.counts(MODELS),
    "tune_busiest": tune.busiest(MODELS),
    "tune_backlog": tune.backlog(MODELS),
    "tune_seen_settings": tune.seen_settings(MODELS),
    "tune_deaths": tune.deaths(MODELS),
    "tune_key_sample": tune.key_sample(MODELS),
}


def _rendered(statement: Executable) -> str:
    """The SQL as the driver gets it, but for its blanks, in which SQLAlchemy 2.0 and 2.1 differ."""
    named = str(statement.compile(dialect=psycopg.dialect()))
    return laid_out(re.sub(r"%\((\w+)\)s", r":\1", named))


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_sql_is_the_one_that_was_reviewed(name: str) -> None:
    golden, rendered = FOLDER / f"{name}.sql", _rendered(STATEMENTS[name])
    if os.environ.get("SA_JOBQUEUE_WRITE_GOLDEN"):
        golden.write_text(rendered, encoding="utf-8")
    assert rendered == golden.read_text(encoding="utf-8")


def test_every_golden_file_has_its_statement() -> None:
    assert {path.stem for path in FOLDER.glob("*.sql")} == set(STATEMENTS)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_state_is_compared_with_a_literal_and_never_with_a_parameter(name: str) -> None:
    sql = _rendered(STATEMENTS[name])
    assert not re.search(r"status (=|<>|!=|IN|= ANY) ?\(?:", sql)
    compiled = STATEMENTS[name].compile(dialect=psycopg.dialect())
    assert not set(compiled.params.values()) & set(State)


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - {"reserve_ids"}))  # that one changes no row
def test_nothing_volatile_stands_in_an_update(name: str) -> None:
    volatile = ("clock_timestamp", "nextval", "random()", "now()", "gen_random_uuid")
    assert not [word for word in volatile if word in _rendered(STATEMENTS[name])]
