"""The first two shell blocks of the README: what a newcomer pastes."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from tests.docs.pages import ROOT, blocks

_README = ROOT / "README.md"


def test_the_first_command_runs_the_demo_and_the_second_the_tests() -> None:
    demo, tests, *_ = _shell_blocks()
    assert demo.splitlines()[0] == tests.splitlines()[0] == "python3 -m venv .venv"
    assert demo.splitlines()[-1] == ".venv/bin/sa-jobqueue demo"
    assert tests.splitlines()[-1].split(" && ") == [
        "ruff check .",
        "ruff format --check .",
        "mypy",
        "lint-imports",
        "pytest -n 4",
    ]


def test_the_commands_name_extras_and_groups_that_the_package_has() -> None:
    project = _project()
    for block in _shell_blocks()[:2]:
        extras = re.findall(r"\.\[([\w,]+)\]", block)[0].split(",")
        assert set(extras) <= set(project["project"]["optional-dependencies"])
        assert set(re.findall(r"--group (\w+)", block)) <= set(project["dependency-groups"])


def test_the_second_command_has_a_pip_that_knows_dependency_groups() -> None:
    lines = _shell_blocks()[1].splitlines()
    upgrade = next(number for number, line in enumerate(lines) if "--upgrade 'pip>=25.1'" in line)
    assert upgrade < next(number for number, line in enumerate(lines) if "--group" in line)


def test_the_readme_opens_with_the_exact_promise() -> None:
    promise = "At-least-once execution; exactly-once effect inside one PostgreSQL database."
    assert promise in "".join(_README.read_text(encoding="utf-8").splitlines(keepends=True)[:8])


def _shell_blocks() -> list[str]:
    return [block.text for block in blocks(_README) if block.language == "sh"]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
