"""A virtual environment for each peer, made once under a cache folder, from PyPI by name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PEERS", "ROOT", "CannotInstall", "PeerSpec", "default_cache", "interpreter", "versions"]

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """What to install, on which Python, which rows of its tables mean that work is left, and how it is set up.

    ``pace`` is how fast it is, about, beside the slower ones.
    """

    name: str
    requirements: tuple[str, ...]
    tables: tuple[str, ...]
    pending: str
    settings: str
    pace: float = 1.0
    atomic: bool = False
    python: tuple[int, int] = (3, 11)


PEERS: Final = (
    PeerSpec(
        "procrastinate",
        ("procrastinate", "psycopg[binary]"),
        ("procrastinate_jobs", "procrastinate_events", "procrastinate_workers"),
        "SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        "concurrency 10",
    ),
    PeerSpec(
        "pgqueuer",
        ("pgqueuer", "asyncpg"),
        ("pgqueuer", "pgqueuer_log"),
        "SELECT FROM pgqueuer",
        "batch_size 100",
        pace=3.0,
    ),
    PeerSpec(
        "oban",
        ("oban", "psycopg[binary]"),
        ("oban_jobs", "oban_leaders", "oban_producers"),
        "SELECT FROM oban_jobs WHERE state IN ('available', 'executing', 'scheduled', 'retryable')",
        "limit 50",
        pace=2.0,
        python=(3, 12),
    ),
    PeerSpec(
        "beanqueue",
        ("beanqueue", "psycopg2-binary"),
        ("bq_tasks", "bq_workers", "bq_events"),
        "SELECT FROM bq_tasks WHERE state <> 'DONE'",
        "BATCH_SIZE 1",
        pace=0.5,
        atomic=True,
    ),
)


class CannotInstall(RuntimeError):
    """A peer cannot be had here; the message says why."""


def default_cache() -> Path:
    """Where environments are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sa_jobqueue_benchmarks"


def interpreter(peer: PeerSpec, cache: Path) -> Path:
    """The Python of the peer's environment, which is made if it is not there yet.

    Raises:
        CannotInstall: no Python is new enough, or the packages could not be had.
    """
    folder = cache / peer.name
    python, done = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join(peer.requirements)
    if not (done.exists() and done.read_text(encoding="utf-8") == wanted):
        _make(folder, _base(peer.python), peer.requirements)
        done.write_text(wanted, encoding="utf-8")
    return python


def versions(python: Path, names: tuple[str, ...]) -> Mapping[str, str]:
    """The installed versions of distributions."""
    script = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    plain = [name.partition("[")[0] for name in names]
    said = _run([str(python), "-c", script, *plain])
    return dict(zip(plain, said.split(), strict=True))


def _make(folder: Path, base: str, requirements: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = str(folder / "bin" / "python")
    if uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)):
        _run([uv, "venv", "--quiet", "--python", base, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", python, *requirements])
    else:
        _run([base, "-m", "venv", str(folder)])
        _run([python, "-m", "pip", "install", "--quiet", *requirements])


def _base(least: tuple[int, int]) -> str:
    """An interpreter of that version or a later one: this one, one on the path, one of pyenv's."""
    for candidate in _candidates():
        if _version(candidate) >= least:
            return candidate
    msg = f"it needs Python {'.'.join(map(str, least))}, and none was found"
    raise CannotInstall(msg)


def _candidates() -> Iterator[str]:
    yield sys.executable
    yield from filter(None, (shutil.which(f"python3.{minor}") for minor in range(12, 15)))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from map(str, sorted(pyenv.glob("3.*/bin/python")))


def _version(python: str) -> tuple[int, ...]:
    try:
        said = _run([python, "-c", "import sys; print(*sys.version_info[:2])"])
    except CannotInstall:
        return (0, 0)
    return tuple(map(int, said.split()))


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 (commands of our own)
    if done.returncode:
        msg = f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}"
        raise CannotInstall(msg)
    return done.stdout
