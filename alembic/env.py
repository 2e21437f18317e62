"""The developer's Alembic environment: for writing the next step, never shipped.

``SA_JOBQUEUE_URL`` names a scratch database. ``alembic upgrade head``, change the models,
``alembic revision --autogenerate --rev-id sajq_0002 -m "what it does"``; then move the operations into a new step.
"""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import create_engine

from sa_jobqueue.migrations.autogenerate import RUNNER_VERSION_TABLE
from sa_jobqueue.models import metadata

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", literal_binds=True, version_table=RUNNER_VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(os.environ["SA_JOBQUEUE_URL"])
    with engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=metadata,
            compare_server_default=True,
            version_table=RUNNER_VERSION_TABLE,
        )
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
