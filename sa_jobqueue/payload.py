"""Refuse, before any SQL, a payload that the server would refuse or that would come back changed.

A value passes if ``json.loads(json.dumps(value))`` through a ``jsonb`` column gives an equal value: dicts with string
keys, lists, strings, ints, finite floats, booleans and None, of exactly these types. Everything else is named by its
path (``$.order.lines[3]``), never by its content, which may be secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sa_jobqueue.errors import InvalidPayload

__all__ = ["check_object", "check_text", "clean_text", "is_plain"]

_REMEDIES: dict[type, str] = {
    tuple: "comes back as a list; pass a list",
    set: "pass a sorted list",
    bytes: "pass base64 text",
}

_MAX_DEPTH = 200
_MAX_INT_BITS = 13_000
_SMALL = 2**63
_WHOLE_FLOAT = 1e16
"""From here on a float is written without a fraction, and jsonb gives it back as an int."""
_NOT_STORABLE = "\x00"


def check_object(value: object, *, root: str = "$") -> None:
    """Walk ``value`` without recursion.

    Raises:
        InvalidPayload: names the first offending path, its type and the remedy.
    """
    if type(value) is not dict:
        raise InvalidPayload(root, f"is a {_name(value)}; a payload is a dict of keyword arguments")
    if all(is_plain(key) and _is_plain(child) for key, child in value.items()):
        return
    waiting: list[tuple[str, object, int]] = [(root, value, 0)]
    while waiting:
        path, item, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise InvalidPayload(path[:80] + "…", f"is nested deeper than {_MAX_DEPTH} levels, or contains itself")
        waiting.extend((below, child, depth + 1) for below, child in _children(path, item))


def is_plain(text: object) -> bool:
    """Whether this is a text that needs no closer look, as most are."""
    return type(text) is str and text.isascii() and _NOT_STORABLE not in text


def _is_plain(value: object) -> bool:
    return (type(value) is int and -_SMALL < value < _SMALL) or is_plain(value)


def clean_text(text: str, limit: int) -> str:
    """``text`` as PostgreSQL can store it: no NUL, no lone surrogate, at most ``limit`` characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.replace(_NOT_STORABLE, "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def check_text(path: str, text: str) -> None:
    """Raise InvalidPayload if ``text`` holds a NUL or a lone surrogate."""
    if _NOT_STORABLE in text:
        raise InvalidPayload(path, "holds a NUL character (\\x00), which PostgreSQL cannot store")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidPayload(path, "holds a lone surrogate, which is not valid UTF-8") from None


def _children(path: str, value: object) -> Iterator[tuple[str, object]]:
    kind = type(value)
    if kind is dict:
        for key, child in value.items():  # type: ignore[attr-defined]  # narrowed by identity, not isinstance
            yield _check_key(path, key), child
    elif kind is list:
        for index, child in enumerate(value):  # type: ignore[arg-type]  # as above
            yield f"{path}[{index}]", child
    else:
        _check_leaf(path, value)


def _check_key(path: str, key: object) -> str:
    if type(key) is not str:
        raise InvalidPayload(path, f"has the key {key!r} of type {_name(key)}; JSON keys are strings")
    below = f"{path}.{key}" if key.isidentifier() else f"{path}[{key!a}]"
    check_text(below, key)
    return below


def _check_leaf(path: str, value: object) -> None:
    if value is None or type(value) is bool:
        return
    if type(value) is str:
        check_text(path, value)
    elif type(value) is int:
        if value.bit_length() > _MAX_INT_BITS:
            raise InvalidPayload(path, f"is an int of more than {_MAX_INT_BITS} bits")
    elif type(value) is float:
        if not math.isfinite(value):
            raise InvalidPayload(path, f"is {value}, which JSON cannot express")
        if abs(value) >= _WHOLE_FLOAT:
            raise InvalidPayload(path, "is a float of 1e16 or more, which comes back as an int; pass an int or a str")
    else:
        remedy = _REMEDIES.get(type(value), "convert it to a str, int, float, list or dict")
        raise InvalidPayload(path, f"is a {_name(value)}; {remedy}")


def _name(value: object) -> str:
    return type(value).__qualname__
