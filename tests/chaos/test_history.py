"""What a process says is kept before it does it, and read back in the order of time."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from sa_jobqueue.testing.chaos.history import Deed, Journal, Kind, read_history

if TYPE_CHECKING:
    from pathlib import Path

_KILLED_AFTER_ITS_WORD = """
import os, signal, sys
from pathlib import Path
from sa_jobqueue.testing.chaos.history import Deed, Journal, Kind
Journal(Path(sys.argv[1]), "victim").write(Kind.INVOKE, Deed.EFFECT, "a")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_process_said_before_it_was_killed_is_kept(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED_AFTER_ITS_WORD, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert [(entry.process, entry.deed, entry.tag) for entry in read_history(tmp_path)] == [("victim", "effect", "a")]


def test_entries_of_several_processes_are_read_in_the_order_of_their_time(tmp_path: Path) -> None:
    one, two = Journal(tmp_path, "one"), Journal(tmp_path, "two")
    for tag in "abcd":
        (one if tag in "ad" else two).write(Kind.OK, Deed.CLAIM, tag, token=1, note="x")
    assert [entry.tag for entry in read_history(tmp_path)] == list("abcd")


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    Journal(tmp_path, "one").write(Kind.OK, Deed.CLAIM, "a")
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"at": 1, "proc')
    assert [entry.tag for entry in read_history(tmp_path)] == ["a"]
