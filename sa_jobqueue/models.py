"""The tables: mixins first, for a team's own ``Base``, schema and names; then the ready-made classes.

Names of constraints and indexes follow the table's name. A change here needs a migration step; a test compares the
catalogs of a migrated database with one made by ``metadata.create_all``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column
from sqlalchemy.schema import conv

from sa_jobqueue.states import DeathReason, Outcome, State

__all__ = [
    "DeadLetter",
    "DeadLetterMixin",
    "DedupKey",
    "DedupKeyMixin",
    "Job",
    "JobLog",
    "JobLogMixin",
    "JobMixin",
    "Models",
    "Rollup",
    "RollupMixin",
    "SchemaVersion",
    "metadata",
]

Json: Final = JSON().with_variant(JSONB(), "postgresql")
BigId: Final = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only under this type; an application's SQLite unit tests create our tables too."""
Timestamp: Final = DateTime(timezone=True)

TURNOVER: Final = {
    "fillfactor": "80",
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.05",
    "autovacuum_vacuum_cost_delay": "0",
}
# Not the table argument postgresql_with: SQLAlchemy 2.0 has none.
_SET_TURNOVER: Final = DDL(  # type: ignore[no-untyped-call]  # untyped in SQLAlchemy
    f"ALTER TABLE %(fullname)s SET ({', '.join(f'{name} = {value}' for name, value in TURNOVER.items())})"
).execute_if(dialect="postgresql")


def _json(default: str) -> Any:
    return mapped_column(Json, nullable=False, server_default=text(f"'{default}'"))


def _moment() -> Any:
    return mapped_column(Timestamp, nullable=False, server_default=func.statement_timestamp())


def _one_of(column: str, values: type[State | DeathReason | Outcome]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


class JobMixin:
    """Columns, constraints and indexes of the table of live jobs."""

    __tablename__: str

    id: Mapped[int] = mapped_column(BigId, Identity(), primary_key=True)
    queue: Mapped[str] = mapped_column(Text)
    task: Mapped[str] = mapped_column(Text)
    args: Mapped[dict[str, Any]] = _json("{}")
    headers: Mapped[dict[str, Any]] = _json("{}")
    status: Mapped[str] = mapped_column(Text, server_default=State.QUEUED)
    priority: Mapped[int] = mapped_column(Integer, server_default="0")
    attempt: Mapped[int] = mapped_column(Integer, server_default="0")
    max_attempts: Mapped[int] = mapped_column(Integer, server_default="5")
    token: Mapped[int] = mapped_column(BigInteger, server_default="0")
    visible_at: Mapped[datetime] = _moment()
    enqueued_at: Mapped[datetime] = _moment()
    claimed_at: Mapped[datetime | None] = mapped_column(Timestamp)
    claimed_by: Mapped[str | None] = mapped_column(Text)
    dedup_key: Mapped[str | None] = mapped_column(Text)
    unique_key: Mapped[str | None] = mapped_column(Text)
    errors: Mapped[list[dict[str, Any]]] = _json("[]")

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[Any, ...]:
        name = cls.__tablename__
        return (
            CheckConstraint(_one_of("status", State), name=conv(f"ck_{name}_status")),
            CheckConstraint("(status = 'claimed') = (claimed_at IS NOT NULL)", name=conv(f"ck_{name}_claimed")),
            CheckConstraint("attempt >= 0 AND max_attempts >= 1", name=conv(f"ck_{name}_attempt")),
            Index(
                f"ix_{name}_ready",
                "queue",
                "priority",
                "visible_at",
                "id",
                postgresql_where=text("status = 'queued'"),
            ),
            Index(
                f"ix_{name}_due",
                "queue",
                "visible_at",
                postgresql_where=text("status IN ('scheduled', 'claimed')"),
            ),
            Index(
                f"uq_{name}_unique_key",
                "unique_key",
                unique=True,
                postgresql_where=text("unique_key IS NOT NULL"),
                sqlite_where=text("unique_key IS NOT NULL"),
            ),
            {"listeners": [("after_create", _SET_TURNOVER)]},
        )


class DedupKeyMixin:
    """Columns of the table of effects that exist: one row per committed dedup key."""

    scope: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str] = mapped_column(Text, primary_key=True)
    job_id: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = _moment()


class DeadLetterMixin:
    """Columns of the table of jobs that were given up: one row per death."""

    __tablename__: str

    id: Mapped[int] = mapped_column(BigId, Identity(), primary_key=True)
    job_id: Mapped[int] = mapped_column(BigInteger)
    queue: Mapped[str] = mapped_column(Text)
    task: Mapped[str] = mapped_column(Text)
    args: Mapped[dict[str, Any]] = _json("{}")
    headers: Mapped[dict[str, Any]] = _json("{}")
    priority: Mapped[int] = mapped_column(Integer)
    attempt: Mapped[int] = mapped_column(Integer)
    max_attempts: Mapped[int] = mapped_column(Integer)
    token: Mapped[int] = mapped_column(BigInteger)
    enqueued_at: Mapped[datetime] = mapped_column(Timestamp)
    dedup_key: Mapped[str | None] = mapped_column(Text)
    unique_key: Mapped[str | None] = mapped_column(Text)
    errors: Mapped[list[dict[str, Any]]] = _json("[]")
    reason: Mapped[str] = mapped_column(Text)
    died_at: Mapped[datetime] = _moment()
    redriven_at: Mapped[datetime | None] = mapped_column(Timestamp)

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[Any, ...]:
        name = cls.__tablename__
        return (
            CheckConstraint(_one_of("reason", DeathReason), name=conv(f"ck_{name}_reason")),
            Index(f"ix_{name}_job", "job_id"),
            Index(f"ix_{name}_open", "queue", "died_at", postgresql_where=text("redriven_at IS NULL")),
        )


class JobLogMixin:
    """Columns of the append-only record of runs; the poll never reads it."""

    __tablename__: str

    id: Mapped[int] = mapped_column(BigId, Identity(), primary_key=True)
    job_id: Mapped[int] = mapped_column(BigInteger)
    queue: Mapped[str] = mapped_column(Text)
    task: Mapped[str] = mapped_column(Text)
    attempt: Mapped[int] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(Text)
    enqueued_at: Mapped[datetime] = mapped_column(Timestamp)
    claimed_at: Mapped[datetime | None] = mapped_column(Timestamp)
    finished_at: Mapped[datetime] = _moment()

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[Any, ...]:
        name = cls.__tablename__
        return (
            CheckConstraint(_one_of("outcome", Outcome), name=conv(f"ck_{name}_outcome")),
            Index(f"ix_{name}_job", "job_id"),
            Index(f"ix_{name}_finished", "finished_at"),
        )


class RollupMixin:
    """Counts of one minute, queue and task: per outcome, and per bucket of the duration histogram.

    ``shard`` is the server process that counted. Nobody else writes its rows, so counting never waits.
    """

    minute: Mapped[datetime] = mapped_column(Timestamp, primary_key=True)
    queue: Mapped[str] = mapped_column(Text, primary_key=True)
    task: Mapped[str] = mapped_column(Text, primary_key=True)
    metric: Mapped[str] = mapped_column(Text, primary_key=True)
    """An outcome, with ``bucket`` -1; or ``seconds``, with ``bucket`` the index of the histogram's bucket."""
    bucket: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    shard: Mapped[int] = mapped_column(
        Integer, primary_key=True, autoincrement=False, server_default=func.pg_backend_pid()
    )
    count: Mapped[int] = mapped_column(BigInteger)


metadata = MetaData(
    naming_convention={"pk": "pk_%(table_name)s", "ix": "ix_%(table_name)s_%(column_0_N_name)s"},
)


class Base(DeclarativeBase):
    """Base of the ready-made classes; its metadata holds our tables and no others."""

    metadata = metadata


class Job(JobMixin, Base):
    """A live job."""

    __tablename__ = "jobqueue_job"


class DedupKey(DedupKeyMixin, Base):
    """An effect that exists."""

    __tablename__ = "jobqueue_dedup_key"


class DeadLetter(DeadLetterMixin, Base):
    """A job that was given up."""

    __tablename__ = "jobqueue_dead_letter"


class JobLog(JobLogMixin, Base):
    """One finished run."""

    __tablename__ = "jobqueue_job_log"


class Rollup(RollupMixin, Base):
    """Counts of one minute."""

    __tablename__ = "jobqueue_rollup"


class SchemaVersion(Base):
    """The one row that says which release's tables these are, whichever way they were migrated."""

    __tablename__ = "jobqueue_schema_version"
    __table_args__ = (CheckConstraint("singleton", name=conv("ck_jobqueue_schema_version_singleton")),)

    singleton: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    version: Mapped[int] = mapped_column(Integer)


@dataclass(frozen=True, slots=True)
class Models:
    """Which mapped classes the statements speak to; pass your own to ``JobSession`` if you use the mixins."""

    job: type[Any] = Job
    dedup_key: type[Any] = DedupKey
    dead_letter: type[Any] = DeadLetter
    job_log: type[Any] = JobLog
    rollup: type[Any] = Rollup

    def table(self, model: type[Any]) -> Table:
        """The table behind one of the classes."""
        table: Table = model.__table__
        return table
