"""The checker: from a history and what is left in the database to the promises that were broken.

It knows no queue. A request is enqueued in a transaction that also writes an order; runs of it begin under a token that
only grows; a run may commit an effect; a request may die, and an operator may bring it back. Whatever moves between
these facts is what is being tested.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from sa_jobqueue.testing.chaos.history import Deed, Entry, Kind
from sa_jobqueue.testing.chaos.remains import Effect, Remains, Start

__all__ = ["SUPPRESSED", "Anomaly", "Finding", "check"]

SUPPRESSED = "duplicate"
"""The note of a run that was acknowledged without an effect, because the effect of its key existed."""


class Anomaly(StrEnum):
    """The ways in which a queue breaks its promise."""

    LOST = "lost"
    DUPLICATE_EFFECT = "duplicate_effects"
    REVIVED = "revived"
    DOUBLE_OWNER = "double_owner"
    PHANTOM = "phantoms"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise; ``subject`` is the tag of the request, or the key of the effect."""

    anomaly: Anomaly
    subject: str
    why: str


def check(history: Iterable[Entry], remains: Remains) -> list[Finding]:
    """Every broken promise, each once."""
    entries = list(history)
    overtaken = list(_overtaken(remains))
    return [
        *_lost(entries, remains),
        *_duplicates(remains.effects),
        *_revived(entries, remains, overtaken),
        *(Finding(Anomaly.DOUBLE_OWNER, old.tag, _both(old, new)) for old, new in overtaken),
        *_phantoms(entries, remains),
    ]


def _lost(entries: Sequence[Entry], remains: Remains) -> Iterator[Finding]:
    """An enqueue committed, and there is no effect, no dead letter and no live job.

    An ``info`` enqueue committed if its order is there. An effect of the same dedup key is the effect of all.
    """
    effects = {effect.identity for effect in remains.effects} | {effect.tag for effect in remains.effects}
    redriven = Counter(remains.redrives)
    buried = {tag for tag, deaths in Counter(remains.deaths).items() if deaths > redriven[tag]}
    keys = {entry.tag: entry.key for entry in entries if entry.deed is Deed.ENQUEUE} | dict(remains.orders)
    for tag in sorted(_enqueued(entries, Kind.OK) | set(remains.orders)):
        if tag not in effects | buried | remains.alive and f"key {keys[tag]}" not in effects:
            yield Finding(Anomaly.LOST, tag, "was enqueued; no effect, no dead letter, not alive")


def _duplicates(effects: Sequence[Effect]) -> Iterator[Finding]:
    """One finding for each effect beyond the first one of its key or request."""
    seen: set[str] = set()
    for effect in sorted(effects, key=lambda effect: effect.transaction):
        if effect.identity in seen:
            yield Finding(Anomaly.DUPLICATE_EFFECT, effect.identity, f"one more effect, by {_named(effect)}")
        seen.add(effect.identity)


def _overtaken(remains: Remains) -> Iterator[tuple[Effect, Start]]:
    """Effects that committed after another run of the same request, not an older one, had begun."""
    starts: dict[str, list[Start]] = defaultdict(list)
    for start in remains.starts:
        starts[start.tag].append(start)
    for effect in remains.effects:
        for start in starts[effect.tag]:
            rival = start.run != effect.run and start.token >= effect.token
            if rival and not start.snapshot.sees(effect.transaction):
                yield effect, start
                break


def _revived(
    entries: Sequence[Entry], remains: Remains, overtaken: Sequence[tuple[Effect, Start]]
) -> Iterator[Finding]:
    """A request came to more ends than one and one for each redrive; two owners at once are counted elsewhere."""
    suppressed = [
        entry.tag
        for entry in entries
        if entry.deed is Deed.SETTLE and entry.kind is Kind.OK and entry.note == SUPPRESSED and entry.tag
    ]
    ends = Counter(chain((effect.tag for effect in remains.effects), remains.deaths, suppressed))
    excused = Counter(chain(remains.redrives, (old.tag for old, _ in overtaken)))
    for tag, count in sorted(ends.items()):
        for _ in range(count - 1 - excused[tag]):
            yield Finding(Anomaly.REVIVED, tag, f"came to {count} ends")


def _phantoms(entries: Sequence[Entry], remains: Remains) -> Iterator[Finding]:
    """Something is there of a request whose transaction did not commit."""
    traces = chain(
        (start.tag for start in remains.starts),
        (effect.tag for effect in remains.effects),
        remains.deaths,
        remains.alive,
    )
    undone = _enqueued(entries, Kind.FAIL) & set(remains.orders)
    for tag in sorted((set(traces) - set(remains.orders)) | undone):
        yield Finding(Anomaly.PHANTOM, tag, "left a trace; its enqueue was not committed")


def _enqueued(entries: Iterable[Entry], kind: Kind) -> set[str]:
    return {entry.tag for entry in entries if entry.deed is Deed.ENQUEUE and entry.kind is kind and entry.tag}


def _both(old: Effect, new: Start) -> str:
    return f"{_named(old)} committed after run {new.run} (token {new.token}) had begun"


def _named(effect: Effect) -> str:
    return f"run {effect.run} (token {effect.token}) of {effect.tag}"
