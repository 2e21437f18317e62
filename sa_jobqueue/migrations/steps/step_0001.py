"""Version 1: all tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from sa_jobqueue.migrations.schemas import create_schema, qualified

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["TABLES", "down_1", "up_1"]

TABLES: Final = (
    "jobqueue_schema_version",
    "jobqueue_job",
    "jobqueue_dedup_key",
    "jobqueue_dead_letter",
    "jobqueue_job_log",
    "jobqueue_rollup",
)

_NOW: Final = sa.text("statement_timestamp()")
_MOMENT: Final = sa.DateTime(timezone=True)
_JOB_STORAGE: Final = (
    "fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, "
    "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, "
    "autovacuum_vacuum_cost_delay = 0"
)


def up_1(op: Operations, schema: str | None) -> None:
    """Make the schema if it is missing, all tables in it, and the row that says version 1."""
    create_schema(op, schema)
    _schema_version(op, schema)
    _job(op, schema)
    _dedup_key(op, schema)
    _dead_letter(op, schema)
    _job_log(op, schema)
    _rollup(op, schema)


def down_1(op: Operations, schema: str | None) -> None:
    """Drop all tables with all jobs in them; the schema stays, since it may hold tables of others."""
    for table in reversed(TABLES):
        op.drop_table(table, schema=schema)


def _schema_version(op: Operations, schema: str | None) -> None:
    table = op.create_table(
        "jobqueue_schema_version",
        sa.Column("singleton", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint("singleton", name=op.f("ck_jobqueue_schema_version_singleton")),
        sa.PrimaryKeyConstraint("singleton", name=op.f("pk_jobqueue_schema_version")),
        schema=schema,
    )
    op.execute(sa.insert(table).values(version=sa.literal_column("1")).inline())


def _job(op: Operations, schema: str | None) -> None:
    op.create_table(
        "jobqueue_job",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("args", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("headers", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("status", sa.Text(), server_default="queued", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.Integer(), server_default="5", nullable=False),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("visible_at", _MOMENT, server_default=_NOW, nullable=False),
        sa.Column("enqueued_at", _MOMENT, server_default=_NOW, nullable=False),
        sa.Column("claimed_at", _MOMENT, nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.Column("unique_key", sa.Text(), nullable=True),
        sa.Column("errors", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobqueue_job")),
        sa.CheckConstraint("status IN ('queued', 'scheduled', 'claimed')", name=op.f("ck_jobqueue_job_status")),
        sa.CheckConstraint("(status = 'claimed') = (claimed_at IS NOT NULL)", name=op.f("ck_jobqueue_job_claimed")),
        sa.CheckConstraint("attempt >= 0 AND max_attempts >= 1", name=op.f("ck_jobqueue_job_attempt")),
        schema=schema,
    )
    # By itself, because SQLAlchemy 2.0 knows no storage parameters of a table
    op.execute(f"ALTER TABLE {qualified('jobqueue_job', schema)} SET ({_JOB_STORAGE})")
    _job_indexes(op, schema)


def _job_indexes(op: Operations, schema: str | None) -> None:
    op.create_index(
        op.f("ix_jobqueue_job_ready"),
        "jobqueue_job",
        ["queue", "priority", "visible_at", "id"],
        schema=schema,
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        op.f("ix_jobqueue_job_due"),
        "jobqueue_job",
        ["queue", "visible_at"],
        schema=schema,
        postgresql_where=sa.text("status IN ('scheduled', 'claimed')"),
    )
    op.create_index(
        op.f("uq_jobqueue_job_unique_key"),
        "jobqueue_job",
        ["unique_key"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("unique_key IS NOT NULL"),
    )


def _dedup_key(op: Operations, schema: str | None) -> None:
    op.create_table(
        "jobqueue_dedup_key",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", _MOMENT, server_default=_NOW, nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_jobqueue_dedup_key")),
        schema=schema,
    )


def _dead_letter(op: Operations, schema: str | None) -> None:
    op.create_table(
        "jobqueue_dead_letter",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("args", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("headers", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("enqueued_at", _MOMENT, nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=True),
        sa.Column("unique_key", sa.Text(), nullable=True),
        sa.Column("errors", JSONB(), server_default=sa.text("'[]'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("died_at", _MOMENT, server_default=_NOW, nullable=False),
        sa.Column("redriven_at", _MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobqueue_dead_letter")),
        sa.CheckConstraint(
            "reason IN ('failed', 'lease_expired', 'rejected', 'cancelled', 'undecodable')",
            name=op.f("ck_jobqueue_dead_letter_reason"),
        ),
        schema=schema,
    )
    op.create_index(op.f("ix_jobqueue_dead_letter_job"), "jobqueue_dead_letter", ["job_id"], schema=schema)
    op.create_index(
        op.f("ix_jobqueue_dead_letter_open"),
        "jobqueue_dead_letter",
        ["queue", "died_at"],
        schema=schema,
        postgresql_where=sa.text("redriven_at IS NULL"),
    )


def _job_log(op: Operations, schema: str | None) -> None:
    op.create_table(
        "jobqueue_job_log",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("enqueued_at", _MOMENT, nullable=False),
        sa.Column("claimed_at", _MOMENT, nullable=True),
        sa.Column("finished_at", _MOMENT, server_default=_NOW, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobqueue_job_log")),
        sa.CheckConstraint(
            "outcome IN ('done', 'duplicate', 'retried', 'snoozed', 'released', 'requeued', 'dead')",
            name=op.f("ck_jobqueue_job_log_outcome"),
        ),
        schema=schema,
    )
    op.create_index(op.f("ix_jobqueue_job_log_job"), "jobqueue_job_log", ["job_id"], schema=schema)
    op.create_index(op.f("ix_jobqueue_job_log_finished"), "jobqueue_job_log", ["finished_at"], schema=schema)


def _rollup(op: Operations, schema: str | None) -> None:
    op.create_table(
        "jobqueue_rollup",
        sa.Column("minute", _MOMENT, nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("bucket", sa.SmallInteger(), nullable=False),
        sa.Column("shard", sa.Integer(), server_default=sa.text("pg_backend_pid()"), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "queue", "task", "metric", "bucket", "shard", name=op.f("pk_jobqueue_rollup")
        ),
        schema=schema,
    )
