from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue import JobSession

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from tests.cli.conftest import Run


@pytest.mark.usefixtures("dead_job")
def test_stats_counts_each_queue_apart(command: Run, session: Session) -> None:
    JobSession(session).enqueue("send", queue="mail")
    JobSession(session).enqueue("send", queue="mail", delay=60)
    session.commit()

    billing, mail = command("stats", "--json").json["queues"]

    assert (billing["queue"], billing["dead"], billing["queued"]) == ("billing", 1, 0)
    assert (mail["queue"], mail["queued"], mail["scheduled"], mail["dead"]) == ("mail", 1, 1, 0)


@pytest.mark.usefixtures("dead_job")
def test_stats_for_people_has_a_line_for_each_queue(command: Run) -> None:
    lines = command("stats").out.splitlines()

    assert lines[0].split()[:2] == ["queue", "queued"]
    assert lines[2].split()[:5] == ["billing", "0", "0", "0", "1"]


@pytest.mark.usefixtures("dead_job")
def test_top_prints_one_json_object_a_look(command: Run) -> None:
    looks = command("top", "--count", "2", "--interval", "0.1", "--json").out.splitlines()

    assert [json.loads(look)["queues"][0]["queue"] for look in looks] == ["billing", "billing"]


@pytest.mark.usefixtures("dead_job")
def test_top_outside_a_terminal_prints_each_look_below_the_other(command: Run) -> None:
    out = command("top", "--count", "2", "--interval", "0.1").out

    assert out.count("billing") == 2
    assert "\x1b" not in out
