"""A program that claims a job, commits the claim, says so, and never gets to the acknowledgement."""

from __future__ import annotations

import sys

from tests.behaviour.clients import CLIENTS

kind, url, visibility_timeout = sys.argv[1:]
with CLIENTS[kind](url) as queue:
    job = queue.claim(visibility_timeout=float(visibility_timeout), worker="doomed")
    queue.commit()
    queue.execute("INSERT INTO effect (name) VALUES ('half done')")
    print(job.id, flush=True)  # noqa: T201 - the signal that the test waits for
    sys.stdin.read()
