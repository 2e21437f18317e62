"""One set of migration steps with three ways in.

- An application calls :func:`upgrade` and :func:`downgrade` inside a migration of its own: the way to choose.
- ``versions/`` is a branch labelled ``sa_jobqueue`` for an application's ``version_locations``.
- :mod:`sa_jobqueue.migrations.runner` is behind ``sa-jobqueue migrate``, with a version table of its own.

All of them write the version into the one row of ``jobqueue_schema_version``, which :func:`check_schema` reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sa_jobqueue.errors import MigrationBlocked
from sa_jobqueue.migrations.autogenerate import include_object
from sa_jobqueue.migrations.installed import check_schema, installed_version
from sa_jobqueue.migrations.steps import LATEST

if TYPE_CHECKING:
    from sa_jobqueue.migrations.host import downgrade, upgrade

__all__ = [
    "LATEST",
    "MigrationBlocked",
    "check_schema",
    "downgrade",
    "include_object",
    "installed_version",
    "upgrade",
]


def __getattr__(name: str) -> Any:
    """Import Alembic, with Mako and Pygments behind it, for a migration only: a worker just checks the version."""
    if name in {"downgrade", "upgrade"}:
        from sa_jobqueue.migrations import host  # noqa: PLC0415 - see above

        return getattr(host, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
