"""Each statement of the poll path has its index, however many rows of the wrong kind lie around, and reads few rows.

The statements are caught as the driver gets them, then explained as prepared statements: with the generic plan that a
connection falls back to after some executions, and with the plan that the planner prefers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.orm import Session

from sa_jobqueue import ClaimedJob, JobSession, Models, Pruned, Retention, exchange
from sa_jobqueue.exchange import Place
from sa_jobqueue.statements import settle
from sa_jobqueue.wire import send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from tests.database import Databases

CROWD = """
INSERT INTO jobqueue_job (queue, task, status, visible_at, claimed_at, priority, attempt, token)
SELECT queue, 't', status, statement_timestamp() + due, CASE status WHEN 'claimed' THEN statement_timestamp() END,
       n % 10, (status = 'claimed')::int, (status = 'claimed')::int
FROM (VALUES ('other', 'queued', interval '-1 hour', 200000), ('main', 'scheduled', interval '1 day', 200000),
             ('main', 'claimed', interval '1 hour', 200000), ('other', 'claimed', interval '-1 second', 5),
             ('main', 'queued', interval '-1 minute', 20), ('main', 'claimed', interval '-1 second', 5))
     AS kinds (queue, status, due, count), generate_series(1, count) AS n;
INSERT INTO jobqueue_dedup_key (scope, key, job_id) SELECT 't', 'key ' || n, n FROM generate_series(1, 200000) AS n;
INSERT INTO jobqueue_dedup_key (scope, key, created_at)
SELECT 't', 'old ' || n, now() - interval '60 days' FROM generate_series(1, 20000) AS n;
INSERT INTO jobqueue_job_log (job_id, queue, task, attempt, outcome, enqueued_at, finished_at)
SELECT n, 'q', 't', 1, 'done', now(), now() - n * interval '1 minute' FROM generate_series(1, 50000) AS n;
INSERT INTO jobqueue_rollup (minute, queue, task, metric, bucket, count)
SELECT now() - n * interval '1 minute', 'q', 't', 'done', -1, 1 FROM generate_series(1, 50000) AS n;
INSERT INTO jobqueue_dead_letter (job_id, queue, task, priority, attempt, max_attempts, token, enqueued_at, reason,
                                  died_at, redriven_at)
SELECT n, 'q', 't', 0, 1, 1, 1, now(), 'failed', now() - interval '60 days',
       CASE WHEN n % 2 = 0 THEN now() - interval '60 days' END FROM generate_series(1, 50000) AS n;
"""
PRUNED = {
    "dedup_keys": ("jobqueue_dedup_key", "Tid Range Scan", None),
    "open_dead_letters": ("jobqueue_dead_letter", "Tid Range Scan", None),
    "redriven_dead_letters": ("jobqueue_dead_letter", "Tid Range Scan", None),
    "job_log": ("jobqueue_job_log", "Index Scan", "ix_jobqueue_job_log_finished"),
    "rollup": ("jobqueue_rollup", "Index Scan", "pk_jobqueue_rollup"),
}
"""By which scan old rows are found. What is found is deleted by its place in the heap."""
MONTH = timedelta(days=30)
READY, DUE, KEY = "ix_jobqueue_job_ready", "ix_jobqueue_job_due", "pk_jobqueue_job"
JOBS = "jobqueue_job"
MANY = 500

Statement = tuple[str, dict[str, Any]]
Node = dict[str, Any]

OPERATIONS: dict[str, tuple[Callable[[JobSession, ClaimedJob], object], set[str]]] = {
    "claim_ready": (lambda jobs, _: jobs.claim_ready("main", limit=10, leases={"t": 30.0}), {READY, KEY}),
    "claim_ready behind a place": (
        lambda jobs, job: exchange.claim_ready(
            jobs.session.connection(), Models(), "main", limit=10, leases={"t": 30.0}, worker="w", behind=Place.of(job)
        ),
        {READY, KEY},
    ),
    "look": (lambda jobs, _: exchange.see(jobs.session.connection(), Models(), ["main", "other"]), {READY, DUE}),
    "ack_many": (lambda jobs, job: jobs.ack_many([job]), {KEY}),
    "release_many": (
        lambda jobs, job: exchange.release_many(jobs.session.connection(), Models(), [job] * 10, log=False),
        {KEY},
    ),
    "unanswered": (
        lambda jobs, _: exchange.release_unanswered(
            jobs.session.connection(), Models(), "other", "w", [1, 2], log=False
        ),
        {DUE},
    ),
    "claim_due": (lambda jobs, _: jobs.claim_many("main", limit=10), {READY, DUE, KEY}),
    "claim_one": (lambda jobs, _: jobs.claim("main"), {READY, DUE, KEY}),
    "heartbeat": (lambda jobs, job: jobs.heartbeat([job] * 10), {KEY}),
    "ack": (lambda jobs, job: jobs.ack(job), {KEY}),
    "ack_or_error": (
        lambda jobs, job: send(
            jobs.session.connection(), settle.ack_or_error(Models()), {"for_id": job.id, "for_token": job.token}
        ),
        {KEY},
    ),
    "suppress": (lambda jobs, job: (jobs.once(job), jobs.suppress(job)), {KEY}),
    "retry": (lambda jobs, job: jobs.fail(job, "x"), {KEY}),
    "release": (lambda jobs, job: jobs.release(job), {KEY}),
    "snooze": (lambda jobs, job: jobs.snooze(job, 1), {KEY}),
    "bury": (lambda jobs, job: jobs.reject(job, "x"), {KEY}),
    "sweep": (lambda jobs, _: jobs.sweep(queues=["main"]), {DUE, KEY}),
    "queues to sweep": (lambda jobs, _: jobs.sweep(0), {DUE, KEY}),
}


def _claim_behind(place: Place | None) -> Callable[[JobSession, ClaimedJob], object]:
    def claim(jobs: JobSession, _: ClaimedJob) -> object:
        connection, leases = jobs.session.connection(), {"t": 30.0}
        return exchange.claim_ready(connection, Models(), "other", limit=MANY, leases=leases, worker="w", behind=place)

    return claim


LONG_CLAIMS: dict[str, Callable[[JobSession, ClaimedJob], object]] = {
    "claim_ready": _claim_behind(None),
    "claim_ready behind a place": _claim_behind(Place(9, datetime(2000, 1, 1, tzinfo=UTC), 0)),
    "claim_due": lambda jobs, _: jobs.claim_many("other", limit=MANY),
}


@pytest.fixture(scope="module")
def crowded(databases: Databases, template: str) -> Iterator[Engine]:
    """200,000 rows of every kind that is not wanted; 20 ready and 5 expired ones that are."""
    with databases.fresh(template) as url:
        engine = create_engine(make_url(url))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(CROWD))
            connection.execute(text("VACUUM ANALYZE"))
        yield engine
        engine.dispose()


@pytest.fixture(scope="module")
def owned(crowded: Engine) -> ClaimedJob:
    """One of the 200,000 claimed jobs, as its owner knows it."""
    with Session(crowded) as session:
        claimed = JobSession(session).claim("main")
        session.rollback()
        row = session.execute(text("SELECT id, token FROM jobqueue_job WHERE visible_at > now() AND token = 1 LIMIT 1"))
        job_id, token = row.one()
        return replace(claimed, id=job_id, token=token)


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_statement_of_the_loop_reads_jobs_by_its_indexes_and_few_of_them(
    operation: str, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    work, indexes = OPERATIONS[operation]
    used, read = set(), 0
    for statement in _sent_by(work, crowded, owned):
        for node in _explained(statement, mode, crowded):
            assert (node["Node Type"], node.get("Relation Name")) != ("Seq Scan", JOBS)
            used |= {node.get("Index Name")} & {READY, DUE, KEY}
            read += _rows_read(node)
    assert used == indexes
    assert read <= 150


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize("limit", [1, 10, 100])
def test_a_claim_reads_no_more_of_a_long_queue_than_it_takes(
    limit: int, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    def claim(jobs: JobSession, _: ClaimedJob) -> object:
        return jobs.claim_many("other", limit=limit)

    (statement,) = _sent_by(claim, crowded, owned)
    nodes = _explained(statement, mode, crowded)
    (queued,) = [node for node in nodes if node.get("Index Name") == READY]
    assert queued["Node Type"] == "Index Scan"
    assert queued["Actual Rows"] <= limit + 1


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize("operation", ["ack", "ack_or_error", "claim_due"])
def test_the_dedup_key_is_looked_up_by_its_primary_key(
    operation: str, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    (statement,) = _sent_by(OPERATIONS[operation][0], crowded, owned)
    lookups = [
        node for node in _explained(statement, mode, crowded) if node.get("Relation Name") == "jobqueue_dedup_key"
    ]
    reads = {(node["Node Type"], node.get("Index Name")) for node in lookups if node["Node Type"] != "ModifyTable"}
    assert reads <= {("Index Only Scan", "pk_jobqueue_dedup_key"), ("Index Scan", "pk_jobqueue_dedup_key")}
    assert reads


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize("operation", LONG_CLAIMS)
def test_a_claim_of_many_jobs_passes_each_of_them_once(
    operation: str, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    (statement,) = _sent_by(LONG_CLAIMS[operation], crowded, owned)
    nodes = _explained(statement, mode, crowded)
    assert nodes[0]["Actual Rows"] == MANY
    assert max(map(_rows_passed, nodes)) <= 2 * MANY


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize("what", PRUNED)
def test_a_batch_of_a_prune_reads_a_bounded_piece_of_its_table(
    what: str, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    table, scan, index = PRUNED[what]
    retention = Retention(**{what: MONTH})
    (statement,) = _sent_by(lambda jobs, _: jobs.prune(retention, limit=MANY), crowded, owned)
    reads = [node for node in _explained(statement, mode, crowded) if node.get("Relation Name") == table]
    kinds = {(node["Node Type"], node.get("Index Name")) for node in reads if node["Node Type"] != "ModifyTable"}
    assert kinds - {("Tid Scan", None)} == {(scan, index)}
    assert max(map(_rows_passed, reads)) <= 5 * MANY


@pytest.mark.parametrize("mode", ["force_generic_plan", "auto"])
@pytest.mark.parametrize(("place", "times"), [("(0,0)", 0), ("last", 1)], ids=["of young keys", "of old keys"])
def test_a_batch_of_keys_reads_live_jobs_once_and_only_if_some_are_old(
    place: str, times: int, mode: str, crowded: Engine, owned: ClaimedJob
) -> None:
    at = _last_key(crowded) if place == "last" else place
    retention, behind = Retention(dedup_keys=MONTH), Pruned(bookmarks={"dedup_keys": at})
    (statement,) = _sent_by(lambda jobs, _: jobs.prune(retention, limit=MANY, behind=behind), crowded, owned)
    reads = [node for node in _explained(statement, mode, crowded) if node.get("Relation Name") == JOBS]
    assert sum(node["Actual Loops"] for node in reads) == times


def _last_key(engine: Engine) -> str:
    """The place of an old key before the last ones."""
    with engine.connect() as connection:
        return connection.scalar(text("SELECT ctid::text FROM jobqueue_dedup_key WHERE key = 'old 15000'"))


def _sent_by(work: Callable[[JobSession, ClaimedJob], object], engine: Engine, job: ClaimedJob) -> list[Statement]:
    """What an operation sends to the server; it is rolled back."""
    sent: list[Statement] = []

    def record(_connection: Any, _cursor: Any, sql: str, values: Any, *_: Any) -> None:
        sent.append((sql, values))

    event.listen(engine, "before_cursor_execute", record)
    with Session(engine) as session:
        work(JobSession(session), job)
        session.rollback()
    event.remove(engine, "before_cursor_execute", record)
    return sent


def _explained(statement: Statement, mode: str, engine: Engine) -> list[Node]:
    """Prepare the statement as psycopg does, run it under EXPLAIN ANALYZE, roll it back."""
    sql, values = statement
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", sql).replace("%%", "%")
    call = f"probe({', '.join(['%s'] * len(names))})" if names else "probe"
    with engine.connect() as connection, psycopg.ClientCursor(connection.connection.dbapi_connection) as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {mode}")
        cursor.execute(f"PREPARE probe AS {numbered}")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {call}", [values[name] for name in names])
        ((plan,),) = cursor.fetchall()
        connection.rollback()
        cursor.execute("DEALLOCATE probe")
    return list(_nodes(plan[0]["Plan"]))


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _rows_read(node: Node) -> float:
    """Rows of the jobs table that a scan gave or threw away, in all its loops."""
    if node.get("Relation Name") != JOBS or not node["Node Type"].endswith("Scan"):
        return 0
    return (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]


def _rows_passed(node: Node) -> float:
    """Rows that a node gave or threw away, in all its loops."""
    given = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return given * node["Actual Loops"]
