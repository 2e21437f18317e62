from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes.crowd import Crowd
from tests.proofs.fixtures import *  # noqa: F403 - fixtures that several folders share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@pytest.fixture
def supervise(engine: Engine) -> Iterator[Callable[..., Crowd]]:
    """A function that starts a supervisor; nothing of it is left after the test."""
    started: list[Crowd] = []
    url = engine.url.render_as_string(hide_password=False)

    def start(**settings: object) -> Crowd:
        started.append(Crowd(url, **settings))
        return started[-1]

    yield start
    for each in started:
        each.close()
