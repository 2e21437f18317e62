"""Looks at the database, and bends it, from a connection that no client knows of; each statement commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, Row


class Observer:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def all(self, sql: str, **values: Any) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            result = connection.execute(text(sql), values)
            return result.all() if result.returns_rows else ()

    def scalar(self, sql: str, **values: Any) -> Any:
        return self.all(sql, **values)[0][0]

    def job(self, job_id: int) -> Row[Any] | None:
        return next(iter(self.all("SELECT * FROM jobqueue_job WHERE id = :id", id=job_id)), None)

    def state(self, job_id: int) -> str | None:
        row = self.job(job_id)
        return row and row.status

    def count(self, status: str) -> int:
        return self.scalar("SELECT count(*) FROM jobqueue_job WHERE status = :status", status=status)

    def dead(self, job_id: int) -> Sequence[Row[Any]]:
        return self.all("SELECT * FROM jobqueue_dead_letter WHERE job_id = :id ORDER BY id", id=job_id)

    def effects(self) -> list[str]:
        return [row.name for row in self.all("SELECT name FROM effect ORDER BY id")]

    def dedup_keys(self) -> list[tuple[str, str]]:
        return [tuple(row) for row in self.all("SELECT scope, key FROM jobqueue_dedup_key ORDER BY 1, 2")]

    def make_due(self, job_id: int) -> None:
        """Let the lease run out, or the due time come, a second ago."""
        sql = "UPDATE jobqueue_job SET visible_at = clock_timestamp() - interval '1 second' WHERE id = :id"
        self.all(sql, id=job_id)

    def steal(self, job_id: int) -> None:
        """Let the lease be somebody else's: a new fencing token, in a queue that no worker of the test serves."""
        self.all("UPDATE jobqueue_job SET token = token + 1, queue = 'heirs' WHERE id = :id", id=job_id)

    def lines_at_rows(self) -> Sequence[Row[Any]]:
        """Who waits in line for a row that others wait for too.

        Not every wait: one who skips locked rows may still have to see another claim's transaction end, where that one
        has locked a newer version of a row which it then does not take (docs/decisions/0008).
        """
        return self.all("SELECT pid, mode FROM pg_locks WHERE NOT granted AND locktype = 'tuple'")

    def lock_waits(self) -> Sequence[Row[Any]]:
        """Requests for a row or for the end of a transaction that are not granted at this moment."""
        return self.all(
            "SELECT pid, locktype, mode FROM pg_locks WHERE NOT granted AND locktype IN ('tuple', 'transactionid')"
        )
