"""Where the tables live: which schema a project has configured, and how it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.operations import Operations

__all__ = ["configured_schema", "create_schema", "qualified"]


def configured_schema() -> str | None:
    """The schema that the running Alembic environment names for our tables; None is the search path's first.

    ``-x sajq_schema=...`` goes before ``[sa_jobqueue] schema`` of the ini file, and that before
    ``sa_jobqueue_schema`` under ``[tool.alembic]`` of pyproject.toml.
    """
    from alembic import context  # noqa: PLC0415 - a worker, which knows the steps by their number, needs no Alembic

    config = context.config
    on_command_line = context.get_x_argument(as_dictionary=True).get("sajq_schema")
    in_ini = (config.get_section("sa_jobqueue") or {}).get("schema")
    return on_command_line or in_ini or config.get_alembic_option("sa_jobqueue_schema") or None


def create_schema(op: Operations, schema: str | None) -> None:
    """Make ``schema`` unless it exists; online and in an SQL script alike.

    ``CREATE SCHEMA IF NOT EXISTS`` demands the CREATE privilege even where there is nothing to create, so a role
    that was only given a schema to work in could not migrate: ask first.
    """
    if schema is None:
        return
    name = _quoted(schema)
    literal = name.replace("'", "''")
    op.execute(f"DO $sajq$BEGIN IF to_regnamespace('{literal}') IS NULL THEN CREATE SCHEMA {name}; END IF; END$sajq$")


def qualified(table: str, schema: str | None) -> str:
    """The table's name for a statement that is written as text: quoted, and with a backslash before each colon.

    The backslash keeps Alembic from taking what follows a colon for a parameter.
    """
    return table if schema is None else f"{_quoted(schema)}.{table}"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""').replace(":", r"\:")
    return f'"{doubled}"'
