"""The documentation as data: pages, and the fenced blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "first-queue.md"

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# ([\w/]+\.py)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; ``unrun`` is the reason that stands above it if the tests must not run it."""

    page: Path
    line: int
    language: str
    text: str
    unrun: str | None

    @property
    def file(self) -> str | None:
        """Name of the file that the block is to be saved as: its first line says so."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README, the changelog and every page under ``docs/``."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    return [
        Block(page, source.count("\n", 0, found.start("text")) + 1, found["language"], found["text"], found["reason"])
        for found in _FENCE.finditer(source)
    ]


def runnable(page: Path) -> list[Block]:
    """The blocks that the tests run."""
    return [block for block in blocks(page) if block.language in {"python", "sh"} and block.unrun is None]


def tables(page: Path) -> list[list[list[str]]]:
    """The tables of a page: rows of cells without their backticks; the first row is the header."""
    found = re.findall(r"(?:^\|.*\|\n)+", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [[_cells(row) for row in table.splitlines() if not re.fullmatch(r"[|:\- ]+", row)] for table in found]


def _cells(row: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in row[1:-1].split("|")]
