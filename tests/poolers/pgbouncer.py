"""A pgbouncer in transaction mode in front of the suite's server, for as long as a ``with`` block."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import URL, make_url

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL = 2
"""Server connections for each database."""
_CONFIGURATION = """
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 200
"""


def find_pgbouncer() -> str | None:
    """Debian has it where only root's path leads."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(program: str, server: str) -> Iterator[URL]:
    """Yield the URL to use instead of ``server``; it leads to the database that it names."""
    to = make_url(server)
    with tempfile.TemporaryDirectory(prefix="sajq-pgbouncer-") as name:
        folder, at = Path(name), to.set(host="127.0.0.1", port=_free_port(), password=None)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(_configure(to, at), encoding="utf-8")
        user = _unprivileged(folder, configuration)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, str(configuration)], stderr=log, cwd="/", **user)
        try:
            wait_until(lambda: process.poll() is not None or _answers(at), what="pgbouncer to answer")
            assert process.poll() is None, (folder / "log").read_text(encoding="utf-8")
            yield at
        finally:
            process.kill()
            process.wait()


def _configure(to: URL, at: URL) -> str:
    server = {"host": to.host or "127.0.0.1", "port": to.port or 5432, "user": to.username, "password": to.password}
    # It takes no empty value, and in a quoted one a quote is written twice.
    written = (f"{name}='" + str(value).replace("'", "''") + "'" for name, value in server.items() if value)
    return _CONFIGURATION.format(server=" ".join(written), listen=at.port, pool=POOL)


def _unprivileged(folder: Path, configuration: Path) -> dict[str, Any]:
    """Arguments of ``Popen`` that leave root behind, because pgbouncer refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for each in (folder, configuration):
        os.chown(each, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(at: URL) -> bool:
    with suppress(psycopg.OperationalError):
        psycopg.connect(host=at.host, port=at.port, user=at.username, dbname=at.database).close()
        return True
    return False
