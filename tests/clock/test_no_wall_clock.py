"""No module reads the wall clock of its process, but for the few whose reading never meets the database's clock."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sa_jobqueue

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = Path(sa_jobqueue.__file__).parent
_HARMLESS = {
    "cli/top.py": "the time of a look, printed for people",
    "testing/factories.py": "rows that a unit test makes up, hours away from every limit",
}
_OF_TIME = {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime"}
_OF_DATES = {"now", "utcnow", "today"}


def wall_clock_reads(code: str) -> Iterator[str]:
    """Every mention, called or not: a column's ``default=datetime.now`` is one too."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(ast.Name("time"), name) if name in _OF_TIME:
                yield f"time.{name}, line {node.lineno}"
            case ast.Attribute(ast.Name("datetime" | "date") | ast.Attribute(_, "datetime" | "date"), name) if (
                name in _OF_DATES
            ):
                yield f"datetime.{name}, line {node.lineno}"
            case ast.ImportFrom("time", names) if _OF_TIME & {alias.name for alias in names}:
                yield f"from time import …, line {node.lineno}"


def test_what_reads_the_wall_clock_is_known_and_harmless() -> None:
    modules = {str(path.relative_to(_PACKAGE)): path.read_text(encoding="utf-8") for path in _PACKAGE.rglob("*.py")}
    reads = {name: list(wall_clock_reads(code)) for name, code in modules.items()}
    assert {name: found for name, found in reads.items() if found and name not in _HARMLESS} == {}
    assert all(reads[name] for name in _HARMLESS), "a module that reads it no longer should leave the list"


@pytest.mark.parametrize(
    "code",
    [
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "datetime.date.today()",
        "mapped_column(default=datetime.now)",
        "time.time()",
        "from time import monotonic, time_ns",
    ],
)
def test_every_way_to_read_it_is_found(code: str) -> None:
    assert len(list(wall_clock_reads(code))) == 1


@pytest.mark.parametrize("code", ["time.monotonic()", "func.now()", "from time import monotonic", "now()"])
def test_other_clocks_are_no_wall_clock(code: str) -> None:
    assert list(wall_clock_reads(code)) == []
