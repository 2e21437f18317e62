"""Do the guards bite? Remove each in turn from a copy of the project, and see a named test fail.

``python -m tests.guards`` ends with code 1 if a guard can go without any of its tests noticing.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[1]
_COPIED = ("sa_jobqueue", "tests", "pyproject.toml")
_AT_ONCE = 3
_SQLALCHEMY = ("sqlalchemy.orm", "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.postgresql.psycopg")
_PYTEST = ("pytest", "pytest_asyncio", "xdist", "hypothesis", "faker")
_IMPORTED = [*_SQLALCHEMY, *_PYTEST, "alembic", "psycopg", "rich", "testcontainers.community.postgres", "typer"]
"""What every test imports: others' packages, never the ones that are tried."""
_ALREADY_IMPORTED = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
_TESTS_FAILED = 1
"""Pytest's exit code; any other but 0 means that it could not run them."""


@dataclass(frozen=True, slots=True)
class Guard:
    """``there`` in ``file`` (below sa_jobqueue/) is what holds; ``gone`` is the code without it."""

    name: str
    file: str
    there: str
    gone: str
    test: str


_STALE = "tests/behaviour/test_stale_owner.py"
_FENCE = "tests/behaviour/test_fence.py"
_DEDUP = "tests/behaviour/test_dedup.py"
_GROUPS = "tests/worker/test_group_commit.py"
_FAULTS = "tests/worker/test_faults.py"
_CROWD = "tests/behaviour/test_concurrency.py"
_CLOSING = "tests/worker/test_closing.py"
_CORE = "tests/worker/test_core_handlers.py"
_CORE_ENGINES = "tests/worker/test_core_engines.py"
_CORE_BENDS = "tests/worker/test_core_bends.py"
_CORE_ENDS = "tests/worker/test_core_ends.py"
_KEPT = "tests/worker/test_kept_connections.py"
_BEGIN = "tests/worker/test_begin.py"
_AUTOCOMMIT = "tests/worker/test_autocommit.py"
_PRUNE = "tests/behaviour/test_prune.py"
_SUPERVISOR = "tests/processes/test_supervisor.py"
_ROSTER = "tests/worker/test_roster.py"
_TUNE = "tests/cli/test_tune_command.py"
_DRAIN_CORE = "tests/testing/test_drain_core.py"

GUARDS = (
    Guard(
        "token in ack, fail, release, snooze, reject",
        "statements/settle.py",
        '        job.c.token == bindparam("for_token", type_=BigInteger),\n',
        "",
        f"{_STALE}::test_a_stale_owner_changes_nothing_is_told_and_cannot_commit",
    ),
    Guard(
        "a re-queued job is nobody's",
        "statements/settle.py",
        "        job.c.claimed_at.is_not(None),\n",
        "",
        f"{_STALE}::test_a_stale_owner_changes_nothing_is_told_and_cannot_commit",
    ),
    Guard(
        "token in the heartbeat",
        "statements/lease.py",
        "job.c.token == beat.c.token, ",
        "",
        f"{_STALE}::test_a_stale_heartbeat_reports_the_loss_and_extends_nothing",
    ),
    Guard(
        "SKIP LOCKED in a service's claim",
        "statements/claim.py",
        "        .with_for_update(skip_locked=True, key_share=True)\n",
        "        .with_for_update(key_share=True)\n",
        f"{_CROWD}::test_a_row_that_one_poller_skipped_is_at_once_available_to_another",
    ),
    Guard(
        "SKIP LOCKED in the worker's claim",
        "statements/claim.py",
        "        .with_for_update(skip_locked=True, key_share=True, of=job)\n",
        "        .with_for_update(key_share=True, of=job)\n",
        "tests/test_statements_golden.py",
    ),
    Guard(
        "SKIP LOCKED in the heartbeat",
        "statements/lease.py",
        "skip_locked=True, ",
        "",
        "tests/behaviour/test_lease.py::test_a_job_that_is_being_settled_is_neither_waited_for_nor_called_lost",
    ),
    Guard(
        "SKIP LOCKED in a prune",
        "statements/prune.py",
        ".with_for_update(skip_locked=True)",
        ".with_for_update()",
        f"{_PRUNE}::test_two_prunes_at_once_take_other_rows_and_neither_waits",
    ),
    Guard(
        "a prune keeps the key that a live job has",
        "statements/prune.py",
        "union_all(live, buried)",
        "buried",
        f"{_PRUNE}::test_the_key_of_a_redelivery_that_came_in_time_is_kept_until_it_is_done",
    ),
    Guard(
        "a prune keeps the key that an open dead letter has",
        "statements/prune.py",
        "union_all(live, buried)",
        "live",
        f"{_PRUNE}::test_the_key_of_a_dead_letter_that_may_be_redriven_is_kept",
    ),
    Guard(
        "a prune reckons ages as of the snapshot",
        "statements/prune.py",
        "func.transaction_timestamp(",
        "func.statement_timestamp(",
        f"{_PRUNE}::test_a_snapshot_that_does_not_show_a_redelivery_does_not_cost_it_its_key",
    ),
    Guard(
        "a prune walks the heap in its order",
        "statements/prune.py",
        "    return rows.order_by(_place())\n",
        "    return rows\n",
        f"{_PRUNE}::test_a_plan_that_comes_by_an_index_passes_no_row_over",
    ),
    Guard(
        "a batch of a prune that failed is tried again with fewer rows",
        "pruning.py",
        "                self._limit = max(1, self._limit // _SMALLER)\n",
        "",
        "tests/test_pruning.py::test_a_batch_that_fails_is_tried_again_in_smaller_pieces",
    ),
    Guard(
        "a table that cannot be pruned does not keep the others from it",
        "pruning.py",
        "            errors[what] = error\n",
        "            raise PruneUnfinished(total.counts, {what: error}) from error\n",
        "tests/test_pruning.py::test_a_table_that_fails_each_time_is_left_for_the_next_prune_and_the_others_are_not",
    ),
    Guard(
        "a duplicate seen at its claim whose key was pruned runs",
        "worker/scopes.py",
        "        raise SnoozeJob(0) from no_effect\n",
        "        raise\n",
        "tests/worker/test_pruned_keys.py",
    ),
    Guard(
        "a duplicate seen at its ack whose key was pruned runs",
        "worker/control.py",
        "        jobs.snooze(job, 0)\n        return Outcome.SNOOZED\n    return Outcome.DUPLICATE",
        "        raise\n    return Outcome.DUPLICATE",
        "tests/worker/test_pruned_keys.py",
    ),
    Guard(
        "commit guard",
        "fence.py",
        "        fence.check()\n",
        "        pass\n",
        f"{_FENCE}::test_a_swallowed_lost_lease_cannot_commit",
    ),
    Guard(
        "an ack in a savepoint that was rolled back is none",
        "fence.py",
        "            if innermost >= _number(name):\n",
        "            if False:\n",
        f"{_FENCE}::test_an_ack_in_a_savepoint_that_ends_without_release_is_no_ack",
    ),
    Guard(
        "the worker's handlers do not commit by themselves",
        "worker/sessions.py",
        "fence.Fence(expected=set(by.expected))",
        "fence.Fence()",
        "tests/worker/test_own_transactions.py::test_a_handler_that_commits_by_itself_is_refused_and_leaves_nothing",
    ),
    Guard(
        "dedup row in the statement of the ack",
        "statements/settle.py",
        "    wanted = select(done.c.task, key, done.c.id)\n",
        "    wanted = select(done.c.task, key, done.c.id).where(done.c.id < 0)\n",
        f"{_DEDUP}::test_a_naive_service_is_refused_its_second_effect",
    ),
    Guard(
        "a second effect of one key is refused",
        "session.py",
        "        if not ours and job.id not in self._fence.known_duplicates:\n",
        "        if False:\n",
        f"{_DEDUP}::test_a_naive_service_is_refused_its_second_effect",
    ),
    Guard(
        "attempt at the claim",
        "statements/claim.py",
        "            attempt=job.c.attempt + 1,\n",
        "",
        "tests/behaviour/test_claim.py"
        "::test_a_lease_that_ran_out_on_the_last_attempt_is_buried_and_the_next_job_is_claimed",
    ),
    Guard(
        "token at the claim",
        "statements/claim.py",
        "            token=job.c.token + 1,\n",
        "",
        f"{_STALE}::test_a_stale_owner_changes_nothing_is_told_and_cannot_commit",
    ),
    Guard(
        "a lost worker's last attempt ends in the dead letters",
        "statements/sweep.py",
        "and_(expired, job.c.attempt >= job.c.max_attempts)",
        "and_(expired, job.c.attempt < 0)",
        "tests/behaviour/test_sweep.py::test_one_sweep_promotes_requeues_and_buries_in_every_queue",
    ),
    Guard(
        "the keeper holds the leases",
        "worker/keeper.py",
        "            self._held.update(runs)\n",
        "            pass\n",
        "tests/proofs/test_a_worker_dies.py::test_a_job_of_three_times_the_timeout_with_heartbeats_is_never_requeued",
    ),
    Guard(
        "the keeper extends no lease under a snapshot",
        "worker/keeper.py",
        "        due = [run for run in held if not run.keeps_snapshot]\n",
        "        due = held\n",
        "tests/worker/test_isolation.py::test_a_run_of_several_heartbeats_is_done_at_its_first_try",
    ),
    Guard(
        "a COMMIT without an answer is looked up",
        "worker/control.py",
        "            return bool(send(connection, settle.written(self.models), given).scalar_one())\n",
        "            return False\n",
        "tests/worker/test_lost_commits.py"
        "::test_a_commit_whose_answer_is_lost_is_neither_run_again_nor_recorded_as_failed",
    ),
    Guard(
        "no sweep right after an outage",
        "worker/shift.py",
        "            self._sweep_from = now + PAUSE_BEFORE_SWEEP\n",
        "            self._sweep_from = now\n",
        "tests/worker/test_outages.py::test_after_an_outage_no_sweep_is_faster_than_the_owners_of_leases_that_are_over",
    ),
    Guard(
        "a transaction of the worker's own that gets no answer is cut",
        "worker/watchdog.py",
        "                    self._cut(call)\n",
        "                    pass\n",
        "tests/worker/test_half_open.py::test_a_loop_whose_connections_go_silent_takes_new_ones_and_says_so_once",
    ),
    Guard(
        "a handler whose session is gone waits for it no longer",
        "worker/keeper.py",
        "                run.cut(socket.SHUT_RD, pid)  #",
        "                pass  #",
        "tests/worker/test_half_open.py"
        "::test_a_handler_whose_connection_goes_silent_is_freed_when_the_server_has_ended_its_session",
    ),
    Guard(
        "a paused worker's own transaction is ended by the server",
        "worker/line.py",
        "SET LOCAL idle_in_transaction_session_timeout = {span}; SET",
        "SET",
        "tests/worker/test_starting.py::test_the_server_bounds_each_transaction_of_the_workers_own",
    ),
    Guard(
        "failures are recorded in a fresh transaction, with a text that can be stored",
        "session.py",
        '    return clean_text(f"{type(error).__name__}: {said}", ERROR_CHARACTERS)\n',
        '    return f"{type(error).__name__}: {said}"\n',
        "tests/behaviour/test_settle.py::test_any_error_can_be_recorded",
    ),
    Guard(
        "no claim in AUTOCOMMIT",
        "session.py",
        "        if in_autocommit(connection):\n            msg",
        "        if False:\n            msg",
        "tests/behaviour/test_claim.py::test_autocommit_is_refused_by_name_because_it_drops_the_row_lock",
    ),
    Guard(
        "the clock moves inside a transaction",
        "statements/literals.py",
        "func.statement_timestamp(",
        "func.now(",
        "tests/behaviour/test_claim.py::test_the_lease_runs_from_the_claiming_statement_not_from_the_transaction",
    ),
    Guard(
        "a job without an effect cannot be suppressed away",
        "statements/settle.py",
        "job.c.id == before.c.id, before.c.exists)",
        "job.c.id == before.c.id)",
        f"{_DEDUP}::test_a_job_without_an_effect_cannot_be_suppressed_away",
    ),
    Guard(
        "a group that failed is run one by one",
        "worker/handling.py",
        "        together = error is None or is_broken(error)\n",
        "        together = True\n",
        f"{_GROUPS}::test_a_failing_job_costs_only_itself_and_the_others_are_run_one_by_one",
    ),
    Guard(
        "a handler that undid what others had done fails its group",
        "worker/handling.py",
        "        if watch.disturbed and len(runs) > 1:\n",
        "        if False:\n",
        f"{_GROUPS}::test_a_handler_that_undoes_something_in_its_session_undoes_nothing_of_the_others",
    ),
    Guard(
        "every job of a group is fenced",
        "statements/settle.py",
        "job.c.id == given.c.id, job.c.token == given.c.token, job.c.claimed_at",
        "job.c.id == given.c.id, job.c.claimed_at",
        f"{_GROUPS}::test_a_job_of_a_group_whose_lease_was_lost_is_left_to_its_new_owner_and_the_others_are_done",
    ),
    Guard(
        "a stale token is an error of the ack that the COMMIT follows unasked",
        "statements/settle.py",
        "text_literal(LOST))",
        'text_literal("0"))',
        f"{_CLOSING}::test_a_stale_token_commits_nothing_and_leaves_the_connection_fit_for_the_next_job",
    ),
    Guard(
        "an effect that exists already is an error of that ack",
        "statements/settle.py",
        "else_=text_literal(DUPLICATE))",
        'else_=text_literal("0"))',
        f"{_CLOSING}::test_an_effect_that_exists_by_now_makes_the_run_a_duplicate_without_an_effect",
    ),
    Guard(
        "a transaction whose ack was refused is rolled back",
        "worker/sessions.py",
        "        connection._rollback_impl()  #",
        "        pass  #",
        f"{_CLOSING}::test_a_stale_token_commits_nothing_and_leaves_the_connection_fit_for_the_next_job",
    ),
    Guard(
        "no other database is committed before the ack",
        "worker/sessions.py",
        "        if self.watch.elsewhere or not self._settle_at_commit",
        "        if not self._settle_at_commit",
        f"{_CLOSING}::test_where_another_database_is_committed_too_the_ack_comes_before_both_commits",
    ),
    Guard(
        "a handler does not commit its connection by itself",
        "worker/connections.py",
        "        if not self.acknowledged:\n",
        "        if False:\n",
        f"{_CORE_BENDS}::test_a_handler_that_commits_by_itself_is_refused_and_leaves_nothing",
    ),
    Guard(
        "a refused commit that a handler swallows is still refused",
        "worker/connections.py",
        "        if self.connection.refused:\n",
        "        if False:\n",
        f"{_CORE_BENDS}::test_a_handler_that_swallows_the_refusal_is_not_acknowledged_without_what_it_did",
    ),
    Guard(
        "the refusal of a commit is what is recorded, not what follows it",
        "worker/connections.py",
        "            watch.failed(refusal)\n",
        "",
        f"{_CORE_BENDS}::test_a_handler_that_runs_into_what_follows_a_refusal_fails_with_the_refusal",
    ),
    Guard(
        "a refused commit of a connection is rolled back",
        "worker/connections.py",
        "            self._rollback_impl()  #",
        "            pass  #",
        f"{_CORE_BENDS}::test_a_handler_that_commits_by_itself_is_refused_and_leaves_nothing",
    ),
    Guard(
        "a commit of a session that a listener failed is rolled back",
        "worker/sessions.py",
        "            _roll_back(self.session)\n",
        "            pass\n",
        f"{_CLOSING}::test_a_commit_that_a_listener_of_the_engine_fails_leaves_nothing_to_the_next_one_on_its_connection",
    ),
    Guard(
        "a handler is followed into its later transactions on other connections",
        "worker/connections.py",
        "        if self.watch is not None:\n            try:\n",
        "        if self.watch is not None and not self.watch.disturbed:\n            try:\n",
        f"{_CORE_ENDS}::test_a_handler_over_its_time_limit_is_ended_where_it_is_now",
    ),
    Guard(
        "a run that was given up begins no transaction on its connection",
        "worker/connections.py",
        "                transaction.rollback()\n                raise\n",
        "                pass\n",
        f"{_CORE_ENDS}::test_a_run_that_lost_its_lease_before_its_first_statement_gets_no_transaction_any_more",
    ),
    Guard(
        "an ack in a savepoint that was left open stays",
        "worker/connections.py",
        ', join_transaction_mode="rollback_only"',
        "",
        f"{_CORE}::test_what_a_handler_may_do_with_its_transaction_keeps_what_it_did_last_and_the_ack",
    ),
    Guard(
        "the server is asked in a greenlet for an async transaction that a listener began",
        "worker/connections.py",
        "        if not given.in_transaction():\n",
        "        if True:\n",
        f"{_CORE_ENGINES}::test_a_listener_that_sends_something_on_each_new_connection_may_begin_the_transaction",
    ),
    Guard(
        "a connection that cannot be followed goes back to its pool",
        "worker/handling.py",
        """        try:
            scope = source.scope(given, self._watch(source, runs), self.books)
""",
        """        scope = source.scope(given, self._watch(source, runs), self.books)
        try:
""",
        f"{_AUTOCOMMIT}::test_a_connection_whose_transaction_is_refused_as_it_is_opened_goes_back_to_its_pool",
    ),
    Guard(
        "no worker starts on an engine in AUTOCOMMIT",
        "worker/setup.py",
        '"isolation_level", default) == "AUTOCOMMIT":',
        '"isolation_level", default) == "NEVER":',
        f"{_AUTOCOMMIT}::test_a_worker_whose_engine_is_in_autocommit_refuses_to_start_and_names_the_remedy",
    ),
    Guard(
        "no handler works in AUTOCOMMIT",
        "worker/watch.py",
        "        if in_autocommit(connection):\n",
        "        if False:\n",
        f"{_AUTOCOMMIT}::test_a_handler_that_switches_its_connection_to_autocommit_is_not_acknowledged_and_has_no_effect",
    ),
    Guard(
        "a transaction with properties of its own begins with them",
        "wire.py",
        "        and (driver.isolation_level, driver.read_only, driver.deferrable) == (None, None, None)\n",
        "",
        f"{_BEGIN}::test_a_transaction_has_the_properties_that_its_handler_asks_for",
    ),
    Guard(
        "a BEGIN that fails is told as SQLAlchemy would tell it",
        "wire.py",
        '            _raise_as_told(connection, error, "BEGIN")\n',
        "            raise\n",
        f"{_BEGIN}::test_a_begin_on_a_connection_that_has_broken_meanwhile_fails_as_a_statement_does_and_spends_no_attempt",
    ),
    Guard(
        "what a handler has set for its connection is undone before the next job",
        "worker/hand.py",
        " and not record.finalize_callback",
        "",
        f"{_KEPT}::test_a_connection_whose_level_a_handler_has_changed_is_put_right_before_the_next_job",
    ),
    Guard(
        "no connection is kept from a pool that has none to spare",
        "worker/connections.py",
        "may_keep=self.spare and ",
        "may_keep=",
        f"{_KEPT}::test_a_connection_goes_back_after_each_job_where_the_pool_has_no_more_than_are_needed",
    ),
    Guard(
        "a kept connection goes back before a session takes another",
        "worker/sessions.py",
        "        hand.close()\n",
        "",
        f"{_KEPT}::test_a_thread_with_a_kept_connection_gives_it_back_before_a_session_takes_its_own",
    ),
    Guard(
        "a run that was given up begins no transaction",
        "worker/watch.py",
        "if given_up := next((run for run in self._runs if run.condemned), None):",
        "if given_up := None:",
        "tests/worker/test_leases.py"
        "::test_a_run_that_lost_its_lease_before_its_first_statement_gets_no_transaction_any_more",
    ),
    Guard(
        "a claim whose answer was lost is given back",
        "worker/shift.py",
        "                self._control.release_unanswered(queue, self.held.ids())\n",
        "                pass\n",
        "tests/worker/test_outages.py::test_a_claim_whose_answer_is_lost_spends_no_attempt_and_waits_for_no_lease",
    ),
    Guard(
        "savepoints of the connection are followed",
        "session.py",
        "        self._fence.follow(connection)\n",
        "",
        f"{_FENCE}::test_an_ack_in_a_savepoint_that_ends_without_release_is_no_ack",
    ),
    Guard(
        "a session that was closed is a failure",
        "worker/watch.py",
        "        self.closed = self.closed or not self._answered\n",
        "        pass\n",
        "tests/worker/test_bends.py::test_a_run_that_bends_the_fence_fails_leaves_nothing_and_the_worker_goes_on",
    ),
    Guard(
        "a connection that goes back to its pool is none of its last run any more",
        "worker/watch.py",
        "record.info.pop(_KEY, None)\n",
        "None\n",
        "tests/worker/test_own_transactions.py"
        "::test_whoever_gets_the_connection_that_a_handler_has_let_go_is_not_ended_with_its_run",
    ),
    Guard(
        "a heartbeat between a COMMIT and its answer takes the job for no loss",
        "worker/keeper.py",
        " and not run.settling",
        "",
        f"{_FAULTS}::test_a_beat_between_a_coroutines_commit_and_its_answer_takes_it_for_no_loss",
    ),
    Guard(
        "a terminate that failed keeps nobody from giving the run up",
        "worker/keeper.py",
        """            with passing_over_outages():
                run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
""",
        """            run.with_backend(lambda pid: self._control.end_backend(pid, terminate=True))
""",
        f"{_FAULTS}::test_a_handler_is_given_up_though_the_keepers_connection_ends_when_it_would_terminate_it",
    ),
    Guard(
        "the worker waits for the last beat of its keeper",
        "worker/keeper.py",
        "        self.join(_LAST_BEAT)\n",
        "",
        f"{_FAULTS}::test_a_worker_returns_when_the_last_beat_of_its_keeper_is_over",
    ),
    Guard(
        "what was claimed from one queue is begun before the next is asked",
        "worker/shift.py",
        """            for lane in wanting:
                now = time.monotonic()
                limit = few_sizes(ceil(self._room(now, lane) / len(wanting)))
                if limit:
                    jobs = self._control.claim(lane.queue, limit, lane.leases, lane.begins(now))
                    lane.came(jobs, limit)
                    self._machine.claimed(len(jobs))
                    self.held.begin(jobs)
""",
        """            found: list[ClaimedJob] = []
            for lane in wanting:
                now = time.monotonic()
                limit = few_sizes(ceil(self._room(now, lane) / len(wanting)))
                if limit:
                    jobs = self._control.claim(lane.queue, limit, lane.leases, lane.begins(now))
                    lane.came(jobs, limit)
                    self._machine.claimed(len(jobs))
                    found += jobs
            self.held.begin(found)
""",
        f"{_FAULTS}::test_what_was_claimed_from_one_queue_runs_though_the_claim_of_the_next_one_fails",
    ),
    Guard(
        "a coroutine's session is closed whatever cancels it",
        "worker/handling.py",
        "                await asyncio.shield(given.close())",
        "                await given.close()",
        "tests/worker/test_cancelled.py"
        "::test_a_handler_that_is_cancelled_while_its_session_rolls_back_keeps_the_connection_of_its_pool",
    ),
    Guard(
        "the worker has connections of its own",
        "worker/line.py",
        "pool=home.pool.recreate()",
        "pool=home.pool",
        "tests/worker/test_starting.py"
        "::test_handlers_that_hold_every_connection_of_their_pool_for_several_leases_keep_them",
    ),
    Guard(
        "jobs of workers that died together come back spread",
        "worker/control.py",
        "queue, _SWEEP_ROWS, self.requeue_jitter)",
        "queue, _SWEEP_ROWS, 0.0)",
        "tests/worker/test_leases.py::test_a_worker_spreads_the_jobs_of_workers_that_died_together_over_its_jitter",
    ),
    Guard(
        "the clock is the database's",
        "statements/literals.py",
        "    return func.statement_timestamp(type_=DateTime(timezone=True))\n",
        """    from datetime import UTC, datetime
    return bindparam(None, callable_=lambda: datetime.now(UTC), type_=DateTime(timezone=True))
""",
        "tests/clock/test_wrong_clocks.py::test_a_delay_counts_from_the_enqueue_by_the_databases_clock",
    ),
    Guard(
        "a forked process leaves the parent's connections alone",
        "worker/child.py",
        "            worker.forget_connections()\n",
        "            pass\n",
        f"{_SUPERVISOR}::test_a_forked_process_has_no_connection_of_its_parent",
    ),
    Guard(
        "a forked process keeps nobody else's leash",
        "worker/child.py",
        "        each.close()  #",
        "        pass  #",
        f"{_SUPERVISOR}::test_the_children_of_a_supervisor_that_was_killed_let_their_jobs_end_and_leave[fork]",
    ),
    Guard(
        "a process whose supervisor was killed leaves",
        "worker/leash.py",
        '                self._hear("leash")\n        self._hear("leash")\n',
        '                self._hear("leash")\n',
        f"{_SUPERVISOR}::test_the_children_of_a_supervisor_that_was_killed_let_their_jobs_end_and_leave[spawn]",
    ),
    Guard(
        "a signal to a whole group of processes is one stop",
        "worker/leash.py",
        "max(self._told.values())",
        "sum(self._told.values())",
        f"{_SUPERVISOR}::test_one_signal_lets_running_jobs_end_whether_or_not_the_children_get_it_too",
    ),
    Guard(
        "a process that dies is replaced",
        "worker/roster.py",
        "        place.due = now + pause\n",
        "",
        f"{_ROSTER}::test_a_place_is_filled_again_after_a_pause_that_doubles_with_each_quick_death",
    ),
    Guard(
        "processes that never come to serve are given up",
        "worker/roster.py",
        "        if self._hopeless(code):\n",
        "        if False:\n",
        f"{_ROSTER}::test_if_none_has_ever_served_the_third_death_ends_all_with_its_code",
    ),
    Guard(
        "a drain refuses a Core handler the end of its test's transaction",
        "testing/lending.py",
        "            setattr(connection, name, partial(self._refuse, error))\n",
        "            setattr(connection, name, getattr(connection, name))\n",
        f"{_DRAIN_CORE}::test_a_core_handler_that_ends_the_transaction_fails_and_the_test_keeps_its_rows",
    ),
    Guard(
        "a Core handler has a savepoint of its own in a drain",
        "testing/lending.py",
        "        connection.begin_nested()\n",
        "",
        f"{_DRAIN_CORE}::test_a_core_handler_whose_own_session_rolls_back_undoes_nothing_of_the_test",
    ),
    Guard(
        "a transaction has begun before a job is enqueued on a connection",
        "tasks/task.py",
        "            if not given.in_transaction():\n                given.begin()\n",
        "",
        "tests/worker/test_core_enqueue.py::test_a_caller_may_enqueue_with_the_first_statement_on_its_connection",
    ),
    Guard(
        "tune only reads",
        "cli/tune/command.py",
        "        connection.execution_options(postgresql_readonly=True)\n",
        "",
        f"{_TUNE}::test_the_server_would_not_let_it_change_anything",
    ),
    Guard(
        "tune says what it could not see",
        "cli/tune/reading.py",
        "            self.refused.append(Unseen(what, str(error.orig).splitlines()[0]))\n",
        "",
        f"{_TUNE}::test_a_reader_is_enough_and_what_it_may_not_see_is_told",
    ),
    Guard(
        "tune guesses nothing from a few runs",
        "cli/tune/advice.py",
        "        if task.runs >= ENOUGH:\n",
        "        if task.runs:\n",
        "tests/cli/test_tune_advice.py::test_a_task_that_hardly_ran_gets_no_advice_and_is_named",
    ),
)


def main() -> int:
    """Try all guards, or those whose name holds the first argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    guards = [guard for guard in GUARDS if wanted in guard.name]
    guards.sort(key=lambda guard: not guard.test.startswith(_SUPERVISOR))  # what takes longest begins first
    with _servers() as urls, ThreadPoolExecutor(_AT_ONCE) as pool:
        unnoticed = [
            guard.name
            for guard, noticed in zip(guards, pool.map(partial(_is_noticed, urls), guards), strict=True)
            if not noticed
        ]
    for name in unnoticed:
        print(f"NOBODY NOTICES that this guard is gone: {name}")  # noqa: T201 - a command
    return 1 if unnoticed else 0


@contextmanager
def _servers() -> Iterator[SimpleQueue[str]]:
    """As many servers as tests run at once: none has a server in common with another one while it runs."""
    from tests.database import choose_server, running  # noqa: PLC0415 - not here, where every child would import it

    with ExitStack() as stack:
        urls: SimpleQueue[str] = SimpleQueue()
        for _ in range(_AT_ONCE):
            urls.put(stack.enter_context(running(choose_server())))
        yield urls


def _is_noticed(urls: SimpleQueue[str], guard: Guard) -> bool:
    began, url = time.monotonic(), urls.get()
    with tempfile.TemporaryDirectory(prefix="sa-jobqueue-guards-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            (shutil.copytree if (_ROOT / name).is_dir() else shutil.copy)(_ROOT / name, copy / name)
        _remove(guard, copy / "sa_jobqueue" / guard.file)
        code, said = _run(guard.test, copy, url)
    urls.put(url)
    if code not in {0, _TESTS_FAILED}:
        msg = f"{guard.name}: pytest could not run {guard.test} (exit code {code})\n{said}"
        raise SystemExit(msg)
    verdict = f"{'bites' if code else 'BITES NOT'} after {time.monotonic() - began:4.1f} s: {guard.name}"
    print(verdict, flush=True)  # noqa: T201 - a command
    return code == _TESTS_FAILED


def _remove(guard: Guard, file: Path) -> None:
    code = file.read_text(encoding="utf-8")
    if code.count(guard.there) != 1:  # tests/test_guards.py has said so before
        msg = f"{guard.name}: {guard.file} should hold this once: {guard.there!r}"
        raise SystemExit(msg)
    file.write_text(code.replace(guard.there, guard.gone), encoding="utf-8")


def _run(test: str, folder: Path, url: str) -> tuple[int | None, str]:
    """Pytest's exit code and what it printed; it runs in a process that was forked after the long imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    process = context.Process(target=_pytest, args=(test, folder, url))
    process.start()
    process.join()
    return process.exitcode, (folder / "said").read_text(encoding="utf-8", errors="replace")


def _pytest(test: str, folder: Path, url: str) -> None:
    with (folder / "said").open("w", encoding="utf-8") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    os.chdir(folder)
    os.environ.update(PYTHONPATH=str(folder), SA_JOBQUEUE_TEST_URL=url)
    sys.path[:] = [str(folder), *(path for path in sys.path if Path(path).resolve() != _ROOT)]
    for module in [module for module in sys.modules if module.partition(".")[0] in _COPIED]:
        del sys.modules[module]
    code = pytest.main(["-q", "-x", "--timeout=60", "-p", "no:cacheprovider", *_ALREADY_IMPORTED, test])
    sys.stdout.flush()
    os._exit(code)  # whatever threads a test without its guard has left


if __name__ == "__main__":
    sys.exit(main())
