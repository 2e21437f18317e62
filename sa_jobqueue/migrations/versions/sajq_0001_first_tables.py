"""All tables: schema version 1."""

from __future__ import annotations

from sa_jobqueue import migrations
from sa_jobqueue.migrations.schemas import configured_schema

revision = "sajq_0001"
down_revision = None
branch_labels = ("sa_jobqueue",)
depends_on = None


def upgrade() -> None:
    migrations.upgrade(1, schema=configured_schema(), from_version=0)


def downgrade() -> None:
    migrations.downgrade(0, schema=configured_schema(), from_version=1)
