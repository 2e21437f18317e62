"""Links inside the documentation lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_internal_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = [f"{target}#{anchor}" for target, anchor in _links(page) if not _leads_somewhere(page, target, anchor)]
    assert broken == []


def test_the_map_of_the_documentation_names_every_page() -> None:
    home = ROOT / "docs" / "index.md"
    named = {(home.parent / target).resolve() for target, _ in _links(home)}
    assert set((ROOT / "docs").rglob("*.md")) - {home} - named == set()


def _links(page: Path) -> list[tuple[str, str]]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return _LINK.findall(prose)


def _leads_somewhere(page: Path, target: str, anchor: str) -> bool:
    aim = (page.parent / target).resolve() if target else page
    return aim.exists() and (not anchor or anchor in _anchors(aim))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
