"""An external receiver over HTTP that works once for each key and refuses an older fencing token; and its sender.

Run it with DATABASE_URL set: ``python examples/fenced_receiver.py``. A job is claimed, and its owner is taken for dead;
the next owner claims it, with a larger token, and sends; then the first one wakes up, sends too, and is refused.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

import sa_jobqueue
from sa_jobqueue import ClaimedJob, JobSession

logger = logging.getLogger("fenced_receiver")

_RAISE_FENCE = """
INSERT INTO fence VALUES (:job_id, :token)
ON CONFLICT (job_id) DO UPDATE SET token = excluded.token WHERE excluded.token >= fence.token
"""
DONE, REPEATED, REFUSED = 201, 200, 409


class Ledger:
    """What the receiver remembers: the largest token of each job, and the keys that it has worked for."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("CREATE TABLE fence (job_id INTEGER PRIMARY KEY, token INTEGER NOT NULL)")
        self._database.execute("CREATE TABLE payment (key TEXT PRIMARY KEY)")

    def accept(self, key: str, job_id: int, token: int) -> int:
        """The HTTP status of the answer. Token and key are looked at and written in one transaction."""
        with self._database:
            given = {"job_id": job_id, "token": token}
            if self._database.execute(_RAISE_FENCE, given).rowcount == 0:
                return REFUSED
            added = self._database.execute("INSERT OR IGNORE INTO payment VALUES (?)", (key,)).rowcount
            return DONE if added else REPEATED


def handler_for(ledger: Ledger) -> type[BaseHTTPRequestHandler]:
    """The request handler of one ledger."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = self.headers
            job_id, token = int(headers["Job-Id"]), int(headers["Fencing-Token"])
            self.send_response(ledger.accept(headers["Idempotency-Key"], job_id, token))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Leave stderr to the example."""

    return Receiver


@contextmanager
def receiver() -> Iterator[int]:
    """Serve on a free port of the loopback interface; the value is the port."""
    with HTTPServer(("127.0.0.1", 0), handler_for(Ledger())) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def send(port: int, job: ClaimedJob) -> int:
    """Send the payment of a job; a handler raises when the answer is 409, since it owns the job no longer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Idempotency-Key": job.idempotency_key, "Job-Id": str(job.id), "Fencing-Token": str(job.token)}
    connection.request("POST", "/payments", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def claim(sessions: sessionmaker[Session], lease: float) -> ClaimedJob:
    """Claim under a lease of so many seconds, and commit."""
    with sessions.begin() as session:
        job = JobSession(session).claim("payments", visibility_timeout=lease)
    if job is None:
        msg = "there is no job to claim"
        raise RuntimeError(msg)
    return job


def main() -> None:
    """Let two owners of one job send, the newer one first."""
    logging.basicConfig(level="INFO", format="%(message)s")
    engine = create_engine(os.environ["DATABASE_URL"])
    sa_jobqueue.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    with sessions.begin() as session:
        JobSession(session).enqueue("pay", {"cents": 1250}, queue="payments", dedup_key="order:7")
    paused = claim(sessions, lease=0.001)
    with receiver() as port:
        owner = claim(sessions, lease=30)
        logger.info("token %d: %d", owner.token, send(port, owner))
        logger.info("token %d again: %d", owner.token, send(port, owner))
        logger.info("token %d, awake again: %d", paused.token, send(port, paused))
    engine.dispose()


if __name__ == "__main__":
    main()
