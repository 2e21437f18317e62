"""What the database holds at the end, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

__all__ = ["Effect", "Remains", "Snapshot", "Start"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions had ended when a statement began: none from ``following`` on, none of those ``running``.

    It orders commits exactly, without any clock. The numbers are 64-bit transaction ids.
    """

    following: int
    running: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the form of ``pg_current_snapshot()``: ``oldest:following:running,running,…``."""
        _, following, running = text.split(":")
        return cls(int(following), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, transaction: int) -> bool:
        """Whether that transaction, which has committed by now, had done so then."""
        return transaction < self.following and transaction not in self.running


@dataclass(frozen=True, slots=True)
class Start:
    """A run that began: committed by itself before the run did anything else."""

    run: str
    tag: str
    token: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Effect:
    """A committed effect of the run ``run``; ``transaction`` is the one that committed it."""

    run: str
    tag: str
    token: int
    transaction: int
    key: str | None = None

    @property
    def identity(self) -> str:
        """What may take effect once: the dedup key, or the request itself."""
        return self.tag if self.key is None else f"key {self.key}"


@dataclass(frozen=True, slots=True)
class Remains:
    """Everything that is left, by the tags of the requests.

    ``orders`` (tag to dedup key) are the business rows that were written by the transactions that enqueued; a tag
    stands once in ``deaths`` for every dead letter and once in ``redrives`` for every time an operator brought it back.
    """

    orders: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    starts: tuple[Start, ...] = ()
    effects: tuple[Effect, ...] = ()
    deaths: tuple[str, ...] = ()
    redrives: tuple[str, ...] = ()
    alive: frozenset[str] = frozenset()
