<%
number = int(up_revision.removeprefix("sajq_"))  # --rev-id sajq_0002: the number is the schema version
generated = bool(upgrades) and upgrades.strip() != "pass"
%>\
"""${message}: schema version ${number}."""

from __future__ import annotations

% if generated:
# Move these operations into sa_jobqueue/migrations/steps/step_${"%04d" % number}.py, then write this revision again
# without --autogenerate: a released revision holds nothing but the two calls.
import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
${imports if imports else ""}
% else:
from sa_jobqueue import migrations
from sa_jobqueue.migrations.schemas import configured_schema

% endif
revision = "${up_revision}"
down_revision = "${down_revision}"
branch_labels = None
depends_on = None


def upgrade() -> None:
% if generated:
    ${upgrades}
% else:
    migrations.upgrade(${number}, schema=configured_schema(), from_version=${number - 1})
% endif


def downgrade() -> None:
% if generated:
    ${downgrades}
% else:
    migrations.downgrade(${number - 1}, schema=configured_schema(), from_version=${number})
% endif
