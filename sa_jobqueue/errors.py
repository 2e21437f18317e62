"""The one family of errors. Each carries its data, says what happened, and says what to do.

::

    JobQueueError
    ├── LeaseLost                 the (id, token) pair owns nothing any more
    │   └── CommitRefused         the fence stopped a commit that no live token covers
    ├── DuplicateEffect           another job committed the effect of this dedup key first
    ├── InvalidArgument           (also a ValueError) refused before any SQL
    │   ├── InvalidPayload        names the path of the value that JSON or PostgreSQL cannot store
    │   └── NoSuchEffect          a job was to be suppressed, but its effect does not exist; only the SQL can tell
    ├── UnsupportedDatabase       not PostgreSQL, or an isolation level that cannot hold a lock
    ├── SchemaMismatch            our tables are missing, or are of another release
    ├── MigrationBlocked          a table lock was not to be had in time; nothing was changed
    ├── PruneUnfinished           some tables could not be pruned to the end; what was committed stays
    ├── UnknownTask               (also a LookupError) no handler of that name is registered
    ├── ArgumentsMismatch         the stored arguments do not fit the handler's signature
    ├── TimeLimitExceeded         a run was ended from outside
    ├── SnapshotOutlivedLease     a run at REPEATABLE READ or above was longer than its lease
    ├── RejectJob                 raised by a handler: do not retry, move to the dead letters
    ├── SnoozeJob                 raised by a handler: run me later, this was no failure
    └── WorkerMisconfigured       a worker that could not keep its promise refuses to start
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

__all__ = [
    "ArgumentsMismatch",
    "CommitRefused",
    "DuplicateEffect",
    "InvalidArgument",
    "InvalidPayload",
    "JobQueueError",
    "LeaseLost",
    "MigrationBlocked",
    "NoSuchEffect",
    "PruneUnfinished",
    "RejectJob",
    "SchemaMismatch",
    "SnapshotOutlivedLease",
    "SnoozeJob",
    "TimeLimitExceeded",
    "UnknownTask",
    "UnsupportedDatabase",
    "WorkerMisconfigured",
]


class JobQueueError(Exception):
    """Base of every error that this package raises on purpose."""


class LeaseLost(JobQueueError):
    """The token is stale: the job was re-queued, claimed again, settled or cancelled meanwhile.

    The session that saw it cannot commit until it is rolled back.
    """

    def __init__(self, job_ids: Iterable[int], doing: str) -> None:
        self.job_ids = tuple(job_ids)
        self.doing = doing
        named = ", ".join(map(str, self.job_ids))
        super().__init__(
            f"lease lost on job {named}: {doing} changed no row, because another worker owns the job by now "
            f"or it is gone. Roll back; whatever this run changed must not commit."
        )


class CommitRefused(LeaseLost):
    """The session would have committed work that no live token covers; roll it back."""

    def __init__(self, job_ids: Iterable[int], reason: str) -> None:
        super().__init__(job_ids, "commit")
        self.reason = reason
        self.args = (f"commit refused: {reason} Roll the session back.",)


class DuplicateEffect(JobQueueError):
    """Another job with the same dedup key committed its effect first; this one's must not follow."""

    def __init__(self, job_id: int, scope: str, key: str) -> None:
        self.job_id, self.scope, self.key = job_id, scope, key
        super().__init__(
            f"job {job_id}: the effect of dedup key {key!r} (scope {scope!r}) exists already. Roll back; then "
            f"suppress(job) if its claim was committed before, else claim it again; or ask once(job) before the effect."
        )


class InvalidArgument(JobQueueError, ValueError):
    """Refused before any SQL: the caller's transaction is untouched."""


class InvalidPayload(InvalidArgument):
    """A value that would be refused by the server or come back changed; ``path`` names it."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path} {problem}")


class NoSuchEffect(InvalidArgument):
    """The job is no duplicate, or is none any more since a prune; it was left as it is, and its owner still has it."""

    def __init__(self, job_id: int, scope: str, key: str) -> None:
        self.job_id, self.scope, self.key = job_id, scope, key
        super().__init__(
            f"job {job_id} has no effect to be a duplicate of: none has dedup key {key!r} (scope {scope!r}). "
            f"Do the work, then ack(job)."
        )


class UnsupportedDatabase(JobQueueError):
    """Claiming needs row locks of PostgreSQL inside a real transaction."""


class SchemaMismatch(JobQueueError):
    """The tables are missing or belong to a release that this one cannot serve."""


class MigrationBlocked(JobQueueError):
    """A lock was not to be had in time; nothing was changed, and the migration can simply be run again."""


class PruneUnfinished(JobQueueError):
    """Some tables were not pruned to the end; ``counts`` is what was, and ``errors`` the last error, by name."""

    def __init__(self, counts: Mapping[str, int], errors: Mapping[str, Exception]) -> None:
        self.counts, self.errors = dict(counts), dict(errors)
        said = "; ".join(f"{what}: {getattr(error, 'orig', error)}" for what, error in self.errors.items())
        super().__init__(
            f"{sum(self.counts.values())} rows are pruned and stay so, but not all that are too old ({said}). "
            f"Prune again later; if it ends in the same way, give a smaller limit, or more time to its statements."
        )


class UnknownTask(JobQueueError, LookupError):
    """No handler of that name is registered."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(sorted(known))
        super().__init__(
            f"no task is named {name!r}; registered: {', '.join(self.known) or 'none'}. "
            f"Import the module that declares it, or correct the name."
        )


class ArgumentsMismatch(JobQueueError):
    """The stored arguments do not fit the handler: it was changed after the job was enqueued, or not yet."""

    def __init__(self, task: str, problem: str) -> None:
        self.task = task
        super().__init__(f"task {task!r} cannot take the stored arguments: {problem}")


class TimeLimitExceeded(JobQueueError):
    """The run outlived its task's time limit; its transaction was ended from outside."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} ran longer than the time limit of its task")


class SnapshotOutlivedLease(JobQueueError):
    """The run, at REPEATABLE READ or SERIALIZABLE, outlived its visibility timeout; it was ended from outside."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(
            f"job {job_id} ran in a transaction at REPEATABLE READ or SERIALIZABLE for longer than its visibility "
            f"timeout. There no heartbeat may extend the lease: it would change the row that the acknowledgement, in "
            f"its older snapshot, has to delete. Raise visibility_timeout of the task above its longest run, or run it "
            f"in READ COMMITTED."
        )


class RejectJob(JobQueueError):
    """Raise in a handler to give the job up without further attempts."""


class SnoozeJob(JobQueueError):
    """Raise in a handler to run the job again after ``delay``; the attempt is given back."""

    def __init__(self, delay: timedelta | float) -> None:
        self.delay = delay
        super().__init__(f"snoozed for {delay}")


class WorkerMisconfigured(JobQueueError):
    """The worker refuses to start, because with these settings a lease could run out in health."""
