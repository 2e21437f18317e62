"""Alembic's environment of the runner. Alembic loads it by path; an application has its own and never sees this one."""

from __future__ import annotations

from alembic import context
from alembic.operations import Operations

from sa_jobqueue.migrations.autogenerate import RUNNER_VERSION_TABLE
from sa_jobqueue.migrations.schemas import configured_schema, create_schema

schema = configured_schema()
enter = context.config.attributes.get("enter")

if context.is_offline_mode():
    context.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},
        literal_binds=True,
        version_table=RUNNER_VERSION_TABLE,
        version_table_schema=schema,
    )
else:
    context.configure(
        connection=context.config.attributes["connection"],
        version_table=RUNNER_VERSION_TABLE,
        version_table_schema=schema,
    )

with context.begin_transaction():
    if enter is not None:
        enter()
    # Alembic makes its version table before the first revision runs, so the schema has to be there by then
    create_schema(Operations(context.get_context()), schema)
    context.run_migrations()
