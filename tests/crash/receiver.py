"""The other side of an external effect: it keeps the largest token of each key, and refuses any smaller one."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Answers = list[tuple[str, int, int]]


@contextmanager
def receiver() -> Iterator[tuple[str, Answers]]:
    """A server on loopback: its URL, and what it was told and answered as (key, token, status)."""
    answers: Answers = []
    largest: dict[str, int] = {}

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key, token = said["key"], said["token"]
            stale = token < largest.get(key, 0)
            largest[key] = max(token, largest.get(key, 0))
            answers.append((key, token, 409 if stale else 200))
            self.send_response(answers[-1][2])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receive) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", answers
        server.shutdown()
        thread.join()
