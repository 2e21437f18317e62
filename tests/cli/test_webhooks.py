from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sa_jobqueue.cli.demo.business import Role
from sa_jobqueue.cli.demo.plot import cast, sendings
from sa_jobqueue.cli.demo.webhooks import SHIPPED, Webhook, read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run

GOOD = json.dumps({"delivery": "d1", "event": "push", "action": None, "payload": {}})
WRONG = {
    "nope": "not JSON",
    "[1]": "an object is expected, not list",
    '{"delivery": "d2", "event": "push"}': "action, payload missing",
    GOOD.replace("d1", ""): "dedup_key must be a non-empty str",
    GOOD.replace('"d1"', "7"): "delivery must be a str",
    GOOD.replace('"push"', "null"): "event must be a non-empty str",
    GOOD.replace("null", "[]"): "action must be a non-empty str",
    GOOD.replace("{}}", "[]}"): "payload is a list",
    GOOD.replace("{}}", '{"a": ["\\u0000"]}}'): "payload.a[0] holds a NUL",
    GOOD.replace("{}}", '{"a": "\\ud800"}}'): "payload.a holds a lone surrogate",
    GOOD.replace("{}}", '{"a": NaN}}'): "payload.a is nan",
    GOOD.replace("{}}", "[" * 100_000 + "}"): "not JSON",
}


def hooks(count: int) -> list[Webhook]:
    return [Webhook(f"d{number}", "push", None, {}) for number in range(count)]


@pytest.mark.parametrize("line", WRONG, ids=WRONG.values())
def test_a_wrong_line_is_named_by_its_number_before_anything_starts(run: Run, tmp_path: Path, line: str) -> None:
    source = tmp_path / "hooks.jsonl"
    source.write_text(f"{GOOD}\n\n{line}\n")

    err = run("demo", "--input", str(source), code=2).err

    assert f"{source}, line 3: " in err
    assert WRONG[line] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [None, b"", b"\n \n", GOOD.encode() + b"\n\xff"])
def test_a_file_that_cannot_be_used_is_one_line(run: Run, tmp_path: Path, content: bytes | None) -> None:
    source = tmp_path / "hooks.jsonl"
    if content is not None:
        source.write_bytes(content)

    err = run("demo", "--input", str(source), code=2).err

    assert str(source) in err
    assert err.count("\n") == 1


def test_the_shipped_file_holds_sixty_deliveries() -> None:
    assert len({webhook.delivery for webhook in read(SHIPPED)}) == 60


@pytest.mark.parametrize("count", [1, 2, 3, 4, 60, 329])
def test_one_delivery_holds_its_worker_one_is_poison_and_the_rest_of_the_cast_comes_with_the_numbers(
    count: int,
) -> None:
    roles = list(cast(hooks(count)).values())

    assert roles.count(Role.HOLD) == 1
    assert roles.count(Role.POISON) == (count > 1)
    assert (Role.STUMBLE in roles) == (count > 2)


def test_some_deliveries_are_sent_twice_and_none_of_those_with_a_role() -> None:
    webhooks = hooks(60)
    roles = cast(webhooks)
    arriving = [webhook.delivery for webhook in sendings(webhooks, roles)]
    twice = {delivery for delivery in arriving if arriving.count(delivery) == 2}

    assert len(arriving) == 60 + len(twice)
    assert len(twice) >= 5
    assert not twice & set(roles)
