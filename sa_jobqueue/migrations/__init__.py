"""One set of migration steps with three ways in.

- An application calls :func:`upgrade` and :func:`downgrade` inside a migration of its own: the way to choose.
- ``versions/`` is a branch labelled ``sa_jobqueue`` for an application's ``version_locations``.
- :mod:`sa_jobqueue.migrations.runner` is behind ``sa-jobqueue migrate``, with a version table of its own.

All of them write the version into the one row of ``jobqueue_schema_version``, which :func:`check_schema` reads.
"""

from __future__ import annotations

from sa_jobqueue.errors import MigrationBlocked
from sa_jobqueue.migrations.autogenerate import include_object
from sa_jobqueue.migrations.host import downgrade, upgrade
from sa_jobqueue.migrations.installed import check_schema, installed_version
from sa_jobqueue.migrations.steps import LATEST

__all__ = [
    "LATEST",
    "MigrationBlocked",
    "check_schema",
    "downgrade",
    "include_object",
    "installed_version",
    "upgrade",
]
