"""The figures of a chaos run, and whether they are good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sa_jobqueue.states import Outcome
from sa_jobqueue.testing.chaos.checker import Anomaly, Finding
from sa_jobqueue.testing.chaos.crew import LEASE_LOST
from sa_jobqueue.testing.chaos.history import Deed, Entry, Kind
from sa_jobqueue.testing.chaos.injector import Toll
from sa_jobqueue.testing.chaos.remains import Remains

__all__ = ["Report", "sum_up"]

_FINDINGS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is printed; ``jobs`` are committed enqueues, ``runs`` handlers that began.

    ``uncertain`` are enqueues whose answer was lost; ``undone`` those that were rolled back; ``left`` describes jobs
    that did not finish within the drain's time.
    """

    jobs: int
    kills: int
    pauses: int
    terminations: int
    restarts: int
    lost: int
    duplicate_effects: int
    revived: int
    double_owner: int
    phantoms: int
    seed: int
    seconds: float
    runs: int
    effects: int
    lease_lost: int
    retries: int
    duplicates_suppressed: int
    dead_letters: int
    redrives: int
    uncertain: int
    undone: int
    zombies: int
    idle_kills: int
    idle_pauses: int
    terminated: dict[str, int]
    drain_seconds: float
    findings: list[dict[str, str]]
    left: list[str]
    missing: list[str]

    def problems(self) -> list[str]:
        """Why the run does not count as a proof; empty if it does."""
        broken = [f"{anomaly}: {getattr(self, anomaly)}" for anomaly in Anomaly if getattr(self, anomaly)]
        unfinished = [f"{len(self.left)} or more jobs did not finish"] if self.left else []
        return [*broken, *unfinished, *(f"no {fault} hit anything; run longer" for fault in self.missing)]


def sum_up(
    *,
    seed: int,
    seconds: float,
    drain_seconds: float,
    toll: Toll,
    history: Sequence[Entry],
    remains: Remains,
    findings: Sequence[Finding],
    left: Sequence[str],
    restarts: bool,
) -> Report:
    """Count everything; ``restarts`` tells whether the server was ours to restart."""
    anomalies = Counter(finding.anomaly for finding in findings)
    notes = Counter(entry.note for entry in history if entry.deed is Deed.SETTLE)
    enqueues = Counter(entry.kind for entry in history if entry.deed is Deed.ENQUEUE)
    return Report(
        jobs=len(remains.orders),
        **{name: getattr(toll, name) for name in ("kills", "pauses", "terminations", "restarts")},
        **{anomaly.value: anomalies[anomaly] for anomaly in Anomaly},
        seed=seed,
        seconds=seconds,
        runs=len(remains.starts),
        effects=len(remains.effects),
        lease_lost=notes[LEASE_LOST],
        retries=notes[Outcome.RETRIED],
        duplicates_suppressed=notes[Outcome.DUPLICATE],
        dead_letters=len(remains.deaths) - len(remains.redrives),
        redrives=len(remains.redrives),
        uncertain=enqueues[Kind.INFO],
        undone=enqueues[Kind.FAIL],
        zombies=toll.zombies,
        idle_kills=toll.idle_kills,
        idle_pauses=toll.idle_pauses,
        terminated=dict(toll.terminated),
        drain_seconds=round(drain_seconds, 1),
        findings=[asdict(finding) for finding in findings[:_FINDINGS_SHOWN]],
        left=list(left),
        missing=list(_missing(toll, restarts=restarts)),
    )


def _missing(toll: Toll, *, restarts: bool) -> Iterator[str]:
    counts: dict[str, Any] = {"kill": toll.kills, "pause": toll.pauses, "termination": toll.terminations}
    if restarts:
        counts["restart"] = toll.restarts
    yield from (kind for kind, count in counts.items() if not count)
