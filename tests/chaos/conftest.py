from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'chaos: hurts a real fleet for some ten seconds; deselect with -m "not chaos"')
