"""What PostgreSQL's own catalogs say about the queue's tables in one schema, as values that can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import create_engine, inspect, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_OURS = """
    WITH ours AS (
        SELECT oid, relname, reloptions FROM pg_class
        WHERE relkind = 'r' AND relname LIKE 'jobqueue%'
        AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)
    )
"""
_PARTS = {
    "columns": """
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid)
        FROM ours JOIN pg_attribute ON attrelid = ours.oid AND attnum > 0 AND NOT attisdropped
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        ORDER BY relname, attnum""",
    "constraints": """
        SELECT relname, conname, contype, pg_get_constraintdef(pg_constraint.oid)
        FROM ours JOIN pg_constraint ON conrelid = ours.oid
        ORDER BY relname, conname""",
    "indexes": """
        SELECT relname, pg_get_indexdef(indexrelid) FROM ours JOIN pg_index ON indrelid = ours.oid ORDER BY 1, 2""",
    "storage": "SELECT relname, reloptions FROM ours ORDER BY relname",
}


def catalog(connection: Connection, schema: str = "public") -> dict[str, list[tuple[object, ...]]]:
    """Columns in their order with types and defaults, and the definitions of constraints, indexes and storage."""
    return {part: list(_rows(connection, query, schema)) for part, query in _PARTS.items()}


def tables(url: str, schema: str = "public") -> set[str]:
    """Names of all tables of one schema, those of others too."""
    engine = create_engine(url)
    try:
        return set(inspect(engine).get_table_names(schema=schema))
    finally:
        engine.dispose()


def _rows(connection: Connection, query: str, schema: str) -> Iterator[tuple[object, ...]]:
    for row in connection.execute(text(_OURS + query), {"schema": schema}):
        yield tuple(row)
