"""The page "What happens when…" names tests that exist."""

from __future__ import annotations

import ast

import pytest

from tests.docs.pages import ROOT, tables

_PAGE = ROOT / "docs" / "explanation" / "what-happens-when.md"
_ROWS = [row for table in tables(_PAGE) for row in table[1:]]


@pytest.mark.parametrize("proof", sorted({row[2] for row in _ROWS}))
def test_a_fault_of_the_page_is_proved_by_a_test_that_exists(proof: str) -> None:
    file, _, name = proof.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in tree.body if isinstance(node, kinds)}
    assert name.startswith("test_")
