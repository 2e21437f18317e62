"""Every example of the documentation runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages, runnable

_ELSEWHERE = {
    "docs/how-to/migrations.md": "tests/test_migrations_host.py runs its commands in applications that it writes",
}
_PAGES = [page for page in pages() if str(page.relative_to(ROOT)) not in _ELSEWHERE]
_UNRUN = [block for page in _PAGES for block in blocks(page) if block.unrun is not None]


@pytest.mark.timeout(300)  # a page starts many processes
@pytest.mark.parametrize("page", [page for page in _PAGES if runnable(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, empty_database_url: str, tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "COLUMNS"},  # pytest-xdist sets it
        "DATABASE_URL": empty_database_url,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "tests.docs.play", str(page)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_no_block_escapes_the_tests_by_its_indentation_or_its_language(page: Path) -> None:
    fences = re.findall(r"^ *```.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))
    assert {block.language for block in blocks(page)} <= {"python", "sh", "text", "sql", "ini", "toml"}


@pytest.mark.parametrize("block", _UNRUN, ids=str)
def test_a_block_that_is_not_run_says_why(block: Block) -> None:
    assert block.unrun
    pytest.skip(block.unrun)


@pytest.mark.parametrize("page", _ELSEWHERE)
def test_a_page_that_is_not_run_here_is_run_elsewhere(page: str) -> None:
    named = _ELSEWHERE[page].split()[0]
    assert (ROOT / named).exists()
    pytest.skip(_ELSEWHERE[page])
