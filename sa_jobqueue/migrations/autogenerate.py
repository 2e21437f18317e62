"""What an application's ``alembic revision --autogenerate`` and ``alembic check`` should see of our tables: nothing."""

from __future__ import annotations

from typing import Final

from sa_jobqueue.migrations.steps import TABLES

__all__ = ["RUNNER_VERSION_TABLE", "include_object"]

RUNNER_VERSION_TABLE: Final = "sa_jobqueue_alembic_version"
_OURS: Final = TABLES | {RUNNER_VERSION_TABLE}


def include_object(_object: object, name: str | None, type_: str, _reflected: object, _compare_to: object) -> bool:
    """False for the tables that this package migrates, in whichever schema; hand it to ``context.configure``.

    A project with a hook of its own calls both: ``return include_object(*args) and mine(*args)``. A team that put the
    mixins on its own ``Base`` migrates its tables itself and must not install it under our names.
    """
    return type_ != "table" or name not in _OURS
