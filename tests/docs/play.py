"""Follow one page as a reader would: ``python -m tests.docs.play PAGE`` in an empty folder, DATABASE_URL set.

A Python block whose first line names a file is saved as that file, any other is run in one namespace; a shell block is
run in the folder. What a block prints must be what the ``text`` block right below it says, with ``...`` for any text.
A page that does not write ``shop.py`` itself gets the one of the tutorial, with its tables made.
"""

from __future__ import annotations

import io
import multiprocessing
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import sa_jobqueue
from sa_jobqueue.cli import main
from tests.docs.pages import TUTORIAL, Block, blocks

_TIMEOUT = 100
_OURS = "sa-jobqueue "


def play(page: Path) -> None:
    """Run the blocks of a page in their order."""
    sys.path.insert(0, str(Path.cwd()))
    shown = blocks(page)
    if not any(block.file == "shop.py" for block in shown):
        _give_shop()
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block, below in pairwise([*shown, None]):
        if block is None or block.unrun is not None or block.language not in {"python", "sh"}:
            continue
        printed = _run_shell(block) if block.language == "sh" else _run_python(block, namespace)
        if below is not None and below.language == "text":
            _compare(block, printed, below.text)


def _give_shop() -> None:
    for block in blocks(TUTORIAL):
        if block.file == "shop.py":
            Path("shop.py").write_text(block.text, encoding="utf-8")
    import shop  # type: ignore[import-not-found]  # noqa: PLC0415 - written just now

    sa_jobqueue.metadata.create_all(shop.engine)
    shop.Base.metadata.create_all(shop.engine)


def _run_python(block: Block, namespace: dict[str, Any]) -> str:
    if block.file is not None:
        Path(block.file).parent.mkdir(parents=True, exist_ok=True)
        Path(block.file).write_text(block.text, encoding="utf-8")
        return ""
    lines_above = "\n" * (block.line - 1)
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(lines_above + block.text, str(block.page), "exec"), namespace)  # noqa: S102 - our own pages
    return printed.getvalue()


def _run_shell(block: Block) -> str:
    lines = block.text.splitlines()
    if all(line.startswith(_OURS) for line in lines):
        return "".join(_run_our_command(block, line.removeprefix(_OURS)) for line in lines)
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", block.text], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        sys.exit(f"{block}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _run_our_command(block: Block, arguments: str) -> str:
    """In a process of its own, forked from one that has imported the package: importing takes longer than the rest."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sa_jobqueue.cli.app"])
    process = context.Process(target=_command, args=(shlex.split(arguments),))
    process.start()
    process.join(_TIMEOUT)
    out, err = (Path(name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    if process.exitcode != 0:
        sys.exit(f"{block}: {_OURS}{arguments}: exit code {process.exitcode}\n{out}{err}")
    return out


def _command(arguments: list[str]) -> None:
    with (
        Path("stdout").open("w", encoding="utf-8") as out,
        Path("stderr").open("w", encoding="utf-8") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        main(arguments)


def _compare(block: Block, printed: str, expected: str) -> None:
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        sys.exit(f"{block} printed:\n{printed}\nthe page says:\n{expected}")


if __name__ == "__main__":
    play(Path(sys.argv[1]))
