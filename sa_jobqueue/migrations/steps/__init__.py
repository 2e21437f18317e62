"""The migration steps, in order, as data; every way to migrate runs these and nothing else.

A step that was released never changes. It names each table, constraint, index and default itself, because a step that
read the models would make something else after the models have moved on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sa_jobqueue.migrations.steps import step_0001

if TYPE_CHECKING:
    from collections.abc import Callable

    from alembic.operations import Operations

__all__ = ["LATEST", "STEPS", "TABLES", "VERSION_TABLE", "Step"]

VERSION_TABLE: Final = "jobqueue_schema_version"


@dataclass(frozen=True, slots=True)
class Step:
    """From schema ``version - 1`` to ``version``, and back; ``tables`` are those that this step brings."""

    version: int
    up: Callable[[Operations, str | None], None]
    down: Callable[[Operations, str | None], None]
    tables: tuple[str, ...] = ()


STEPS: Final = (Step(1, step_0001.up_1, step_0001.down_1, step_0001.TABLES),)
LATEST: Final = STEPS[-1].version
TABLES: Final = frozenset(table for step in STEPS for table in step.tables)
