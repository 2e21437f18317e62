"""One database to measure in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.server import Arena, arena

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ready(database_url: str) -> Iterator[Arena]:
    with arena(database_url) as ready:
        yield ready
