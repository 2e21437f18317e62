"""Which PostgreSQL the suite runs on, and fresh databases on it."""

from __future__ import annotations

import gc
import os
import shutil
import uuid
import warnings
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest
from docker.errors import DockerException, ImageNotFound
from sqlalchemy import create_engine, make_url, text
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config

from sa_jobqueue.embedded import embedded_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Engine

_SETTINGS = {"fsync": "off", "max_connections": "200"}
_ROOM = 4 * 2**30
_OWN_IMAGE = "sa-jobqueue/postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """The choice of one session: an address, an image, or (with neither) the embedded server."""

    url: str | None = None
    image: str | None = None

    def __str__(self) -> str:
        if self.url is not None:
            return f"server of SA_JOBQUEUE_TEST_URL ({make_url(self.url).render_as_string(hide_password=True)})"
        return "embedded server" if self.image is None else f"testcontainers, image {self.image}"


def choose_server(environ: Mapping[str, str] = os.environ) -> Server:
    """SA_JOBQUEUE_TEST_URL, else the kind named by SA_JOBQUEUE_TEST_SERVER, else a container where one can start."""
    if url := environ.get("SA_JOBQUEUE_TEST_URL"):
        return Server(url=url)
    kind = environ.get("SA_JOBQUEUE_TEST_SERVER")
    if kind not in {None, "", "embedded", "testcontainers"}:
        message = f"SA_JOBQUEUE_TEST_SERVER is embedded or testcontainers, not {kind!r}"
        raise pytest.UsageError(message)
    if kind == "embedded":
        return Server()
    image, reason = local_image(environ)
    if image is None and kind == "testcontainers":
        message = f"SA_JOBQUEUE_TEST_SERVER=testcontainers, but {reason}"
        raise pytest.UsageError(message)
    return Server(image=image)


def local_image(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
    """Return an image that starts without a pull, or None and the reason."""
    # Docker's client leaks the socket on which nobody answered, and the suite makes errors of warnings.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        found = _look_for_image(environ)
        gc.collect()
    return found


def _look_for_image(environ: Mapping[str, str]) -> tuple[str | None, str]:
    name = environ.get("SA_JOBQUEUE_TEST_IMAGE")
    try:
        with closing(docker.from_env(timeout=10)) as client:
            name = name or next((tag for image in client.images.list(_OWN_IMAGE) for tag in image.tags), None)
            if name is None:
                return None, f"there is no image {_OWN_IMAGE} (.ci/docker-engine.sh start builds one)"
            client.api.inspect_image(name)
    except ImageNotFound:
        return None, f"the image {name} is not on this machine, and tests pull none"
    except DockerException as error:
        return None, f"no Docker engine answers: {error}"
    return name, ""


@contextmanager
def running(server: Server) -> Iterator[str]:
    """Start what was chosen, if need be, and yield the URL of a role that may create databases."""
    if server.url is not None:
        yield server.url
    elif server.image is not None:
        with container(server.image) as started:
            yield started.get_connection_url()
    else:
        with embedded_postgres(within=memory_folder(), settings=_SETTINGS) as embedded:
            yield embedded.url


def container(image: str) -> PostgresContainer:
    """Build a container of a local image; entering it returns when the server answers a query."""
    # Ryuk, which would clean up after a killed test run, is an image to be pulled.
    testcontainers_config.ryuk_disabled = True
    options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    name = "postgres"
    built = PostgresContainer(image, username=name, password=name, dbname=name, driver="psycopg")
    return built.with_command(options).with_env("PGDATA", "/pgdata").with_tmpfs_mount("/pgdata")


def memory_folder() -> Path | None:
    """A file system in memory, if it is large enough: there CREATE DATABASE takes 20 ms, on some disks 300."""
    memory = Path("/dev/shm")  # noqa: S108 (what is made in it has a random name)
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > _ROOM else None


class Databases:
    """Makes and drops databases on one server."""

    def __init__(self, admin: Engine) -> None:
        self._admin = admin

    @property
    def version(self) -> str:
        """What the server calls itself."""
        with self._admin.connect() as connection:
            return str(connection.scalar(text("SHOW server_version")))

    @property
    def url(self) -> str:
        """Of the server, for a role that may create databases."""
        return self._admin.url.render_as_string(hide_password=False)

    @contextmanager
    def fresh(self, template: str = "template0") -> Iterator[str]:
        """Yield the URL of a database that nobody else knows; it is dropped under whoever still uses it."""
        name = f"sajq_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self._admin.url.set(database=name).render_as_string(hide_password=False)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(statement))


@contextmanager
def databases_of(url: str) -> Iterator[Databases]:
    """Hold one connection to the server, outside any transaction, for as long as the block runs."""
    admin = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    try:
        yield Databases(admin)
    finally:
        admin.dispose()
