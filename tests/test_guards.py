"""The guards that ``python -m tests.guards`` takes out are where it looks for them, and so are their tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.guards import GUARDS, Guard

_ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_stands_once_in_its_module_and_its_test_exists(guard: Guard) -> None:
    assert (_ROOT / "sa_jobqueue" / guard.file).read_text(encoding="utf-8").count(guard.there) == 1
    path, _, name = guard.test.partition("::")
    assert (_ROOT / path).exists()
    assert not name or name.partition("[")[0] in _functions(_ROOT / path)


def test_no_two_guards_have_one_name() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


def _functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}
