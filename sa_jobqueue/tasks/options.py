"""What one enqueue may change of a task's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sa_jobqueue.errors import InvalidArgument

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a :class:`NewJob`, by their names there."""

    queue: str
    max_attempts: int
    priority: int = 0
    delay: timedelta | float | None = None
    run_at: datetime | None = None
    dedup_key: str | None = None
    unique_key: str | None = None
    headers: Mapping[str, Any] | None = None

    def changed(self, changes: Mapping[str, Any]) -> Options:
        """The same but for the changes; raises InvalidArgument for any other name."""
        if unknown := sorted(set(changes) - set(self.__dataclass_fields__)):
            msg = f"using() knows {sorted(self.__dataclass_fields__)}; got {unknown}"
            raise InvalidArgument(msg)
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """By name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
