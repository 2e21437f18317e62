"""``sa-jobqueue chaos``: a good fleet passes, a broken one is found out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

_ROOT = Path(__file__).parents[2]
_ANOMALIES = ("lost", "duplicate_effects", "revived", "double_owner", "phantoms")


def _chaos(*options: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "sa_jobqueue.cli", "chaos", "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_fleet_under_kills_pauses_terminations_and_a_restart_keeps_every_promise() -> None:
    code, figures = _chaos("--seconds", "8", "--seed", "5")
    assert {name: figures[name] for name in _ANOMALIES} == dict.fromkeys(_ANOMALIES, 0), figures["findings"]
    assert all(figures[fault] > 0 for fault in ("kills", "pauses", "terminations", "restarts", "jobs")), figures
    assert (code, figures["left"], figures["seed"]) == (0, [], 5)


def test_handlers_that_commit_their_effect_outside_the_jobs_transaction_are_found_out(database_url: str) -> None:
    code, figures = _chaos("--seconds", "8", "--seed", "5", "--url", database_url, "--crew", "tests.chaos.leaky_crew")
    assert figures["duplicate_effects"] > 0
    assert code == 1


def test_a_fleet_whose_fence_ignores_tokens_is_found_out_within_a_few_seeds(database_url: str) -> None:
    """By chance: a stopped worker must go on while the one that took its job over is still at it."""
    options = ("--seconds", "10", "--url", database_url, "--crew", "tests.chaos.fenceless_crew")
    runs = (_chaos("--seed", str(seed), *options) for seed in range(1, 6))
    assert any(code == 1 and figures["double_owner"] > 0 for code, figures in runs)
