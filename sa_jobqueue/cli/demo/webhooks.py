"""Webhooks from a JSON Lines file, checked line by line before anything starts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sa_jobqueue.cli.problems import MISUSED, Problem
from sa_jobqueue.errors import InvalidArgument
from sa_jobqueue.payload import check_object
from sa_jobqueue.values import NewJob, check_name

__all__ = ["SHIPPED", "Webhook", "read"]

SHIPPED: Final = Path(__file__).with_name("webhooks.jsonl")
_KEYS: Final = ("delivery", "event", "action", "payload")


@dataclass(frozen=True, slots=True)
class Webhook:
    """One delivery as its sender sent it; ``delivery`` is the key by which it is known.

    Raises:
        InvalidArgument: if the database could not store it.
    """

    delivery: str
    event: str
    action: str | None
    payload: dict[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        check_name("event", self.event)
        if self.action is not None:
            check_name("action", self.action)
        check_object(self.payload, root="payload")
        if not isinstance(self.delivery, str):
            msg = f"delivery must be a str; got {self.delivery!r}"
            raise InvalidArgument(msg)
        NewJob("delivery", {"delivery_id": self.delivery}, dedup_key=self.delivery)


def read(path: Path) -> list[Webhook]:
    """All webhooks of the file, in its order; blank lines are skipped.

    Raises:
        Problem: the file cannot be read or holds none, or a line is wrong; the message says which.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise Problem(msg, code=MISUSED) from None
    found = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        msg = f"{path} holds no webhook; each line is an object with {', '.join(_KEYS)}"
        raise Problem(msg, code=MISUSED)
    return found


def _parse(path: Path, number: int, line: bytes) -> Webhook:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise _wrong(path, number, f"an object is expected, not {type(value).__name__}")
        if missing := [key for key in _KEYS if key not in value]:
            raise _wrong(path, number, f"{', '.join(missing)} missing")
        return Webhook(*(value[key] for key in _KEYS))
    except InvalidArgument as error:
        raise _wrong(path, number, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _wrong(path, number, f"not JSON: {error}") from None


def _wrong(path: Path, number: int, what: str) -> Problem:
    return Problem(f"{path}, line {number}: {what}", code=MISUSED)
