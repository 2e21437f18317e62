"""A worker process of a queue whose fence is gone: whoever once owned the job may settle it, whatever its token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, bindparam

from sa_jobqueue.statements import settle
from sa_jobqueue.testing.chaos import crew

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table


def _owned_by_anybody(job: Table) -> ColumnElement[bool]:
    return job.c.id == bindparam("for_id", type_=BigInteger)


if __name__ == "__main__":
    unguarded: Any = settle
    unguarded.owned = _owned_by_anybody
    crew.main()
