"""Short words for histories that are made by hand. Transactions are numbered in the order of their commits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sa_jobqueue.testing.chaos.checker import check
from sa_jobqueue.testing.chaos.history import Deed, Entry, Kind
from sa_jobqueue.testing.chaos.remains import Effect, Remains, Snapshot, Start

if TYPE_CHECKING:
    from collections.abc import Iterable


def enqueue(tag: str, kind: Kind = Kind.OK, key: str | None = None) -> Entry:
    return Entry(0, "e", kind, Deed.ENQUEUE, tag, key)


def suppressed(tag: str) -> Entry:
    return Entry(0, "w", Kind.OK, Deed.SETTLE, tag, note="duplicate")


def start(tag: str, token: int, *, before: int, run: str | None = None) -> Start:
    """A run that begins when transaction ``before`` is the next one to commit."""
    return Start(run or f"{tag}/{token}", tag, token, Snapshot(before))


def effect(tag: str, token: int, transaction: int, *, key: str | None = None, run: str | None = None) -> Effect:
    return Effect(run or f"{tag}/{token}", tag, token, transaction, key)


def findings(history: Iterable[Entry] = (), **remains: Any) -> dict[str, int]:
    """What the checker finds, counted by anomaly; ``orders`` may be tags alone."""
    orders = remains.pop("orders", ())
    left = Remains(orders=orders if isinstance(orders, dict) else dict.fromkeys(orders), **remains)
    return dict(Counter(str(finding.anomaly) for finding in check(history, left)))
