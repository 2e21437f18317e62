"""The programs in ``examples/`` run, and do what they say."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT


def test_a_service_stores_each_reading_once_and_buries_the_bad_one(empty_database_url: str) -> None:
    said = _run("claim_service", empty_database_url)
    assert sorted(line.split(" ", 2)[2] for line in said[:-1]) == [
        "failed, dead: False",
        "failed, dead: True",
        "stored",
        "stored",
        "was a duplicate",
    ]
    assert said[-1] == "2 readings"


def test_an_application_pays_and_ships_each_order_that_has_a_price(empty_database_url: str) -> None:
    assert [line for line in _run("orders_app", empty_database_url) if line.startswith("order ")] == [
        "order 1: paid True, shipped True",
        "order 2: paid True, shipped True",
        "order 3: paid False, shipped False",
    ]


def test_a_receiver_refuses_the_older_fencing_token(empty_database_url: str) -> None:
    assert _run("fenced_receiver", empty_database_url) == [
        "token 2: 201",
        "token 2 again: 200",
        "token 1, awake again: 409",
    ]


def _run(example: str, url: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
    environment = {**os.environ, "DATABASE_URL": url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()
