"""Wake-up hints: which channel they travel on, and what they say. A hint is short, whatever queues are called."""

from __future__ import annotations

from functools import cache
from hashlib import blake2s

from sa_jobqueue.models import Models

__all__ = ["NOTIFY", "channel", "listen", "mark", "notify"]

NOTIFY = "NOTIFY {channel}, '{word}'"


@cache
def channel(models: Models) -> str:
    """The channel of one jobs table: at most 63 bytes, as the server allows, and no characters to quote."""
    return f"sa_jobqueue_{mark(models.table(models.job).fullname)}"


@cache
def listen(models: Models) -> str:
    """The statement that subscribes to it."""
    return f"LISTEN {channel(models)}"


def notify(channel: str, word: str) -> str:
    """The statement that says a word there: a :func:`mark`, or anything else without a quote or backslash."""
    return NOTIFY.format(channel=channel, word=word)


@cache
def mark(name: str) -> str:
    """What stands for a queue in a hint: 16 characters for any name."""
    return blake2s(name.encode(), digest_size=8).hexdigest()
