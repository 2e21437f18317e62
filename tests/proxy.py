"""A TCP proxy before the server, on loopback, that can do to a connection what networks do."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sqlalchemy import make_url, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.orm import Session

    from tests.behaviour.observer import Observer

_CHUNK = 65536


class Link:
    """One connection, client to server; ``port`` is what the server knows as ``client_port``."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client, self._server = client, server
        self.port: int = server.getsockname()[1]
        self.open = threading.Event()
        self.open.set()
        self.losing: bytes | None = None
        self.forwards = True
        self.lost = threading.Event()
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def close(self) -> None:
        self.open.set()
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                self.open.wait()
                if source is self._client and self.losing is not None and self.losing in data:
                    self.lost.set()
                    if not self.forwards:
                        break
                elif source is self._server and self.lost.is_set():
                    break
                target.sendall(data)
        self.close()


class Proxy:
    """Forwards connections to one server until told otherwise."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._links: list[Link] = []
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        port = self._listener.getsockname()[1]
        return self._target.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    def freeze(self, *ports: int) -> None:
        """Forward nothing more on these connections (else on all), and close nothing: the ends see only silence."""
        for link in self._of(*ports) if ports else list(self._links):
            link.open.clear()

    def freeze_all(self) -> None:
        """The same for all connections, those that are yet to be made too."""
        self._open.clear()
        self.freeze()

    def thaw_new(self) -> None:
        """Forward on connections that are made from now on; those that are frozen stay so."""
        self._open.set()

    def lose(self, port: int, statement: bytes, *, forward: bool) -> threading.Event:
        """Cut this connection at ``statement``: instead of forwarding it, or else its answer. Set when it came."""
        (link,) = self._of(port)
        link.losing, link.forwards = statement, forward
        return link.lost

    def close(self) -> None:
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()

    def _of(self, *ports: int) -> list[Link]:
        found = [link for link in self._links if link.port in ports]
        assert len(found) == len(ports), f"no connection on one of the ports {ports}"
        return found

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._target.host or "127.0.0.1", self._target.port or 5432))
                link = Link(client, server)
                if not self._open.is_set():
                    link.open.clear()
                self._links.append(link)


@contextmanager
def proxy_before(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def port_of(session: Session, observer: Observer) -> int:
    """The port under which the server, and the proxy, know the connection that the session is on."""
    pid = session.scalar(text("SELECT pg_backend_pid()"))
    port: int = observer.scalar("SELECT client_port FROM pg_stat_activity WHERE pid = :pid", pid=pid)
    return port
