"""Of one task: how often it is tried again, and whether that helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.cli.show import duration
from sa_jobqueue.cli.tune.observed import Deaths, Figures, Recommendation, Settings, TaskRuns
from sa_jobqueue.cli.tune.rounding import percent
from sa_jobqueue.states import Outcome

__all__ = ["retries"]

_FEW_DEAD: Final = 10
_FEW_RETRIES: Final = 100
_IN_VAIN, _HELPFUL = 0.8, 0.5
_DYING: Final = 0.01
_OFTEN: Final = 0.2
_ONCE_MORE: Final = 2
_MORE: Final = 3
_SLOWER: Final = 5
_DOUBLINGS: Final = 40
"""After so many, any backoff is at its cap."""


def retries(runs: TaskRuns, settings: Settings, deaths: Deaths) -> Iterator[Recommendation]:
    """At most one hint about the number of attempts, and one about the pause between them."""
    retried = runs.count(Outcome.RETRIED)
    vain = min(deaths.retries / retried, 1.0) if retried else 0.0
    figures = {"retried": retried, "ended": runs.ended, "died": deaths.failed, "retries_of_the_dead": deaths.retries}
    if deaths.failed >= _FEW_DEAD and vain >= _IN_VAIN:
        if settings.max_attempts is None or settings.max_attempts > _ONCE_MORE:
            yield _in_vain(runs, settings, deaths, figures)
        return
    if deaths.failed >= _FEW_DEAD and vain <= _HELPFUL and retried and deaths.failed >= _DYING * runs.ended:
        yield _too_few(runs, settings, deaths, vain, figures)
    if retried >= _FEW_RETRIES and retried >= _OFTEN * runs.ended:
        base = (settings.backoff or Backoff()).base
        why = f"{percent(retried / runs.ended)} of its runs end in a retry: give what is down more time to come back"
        known = duration(base) if settings.backoff else None
        yield Recommendation("task", runs.task, "backoff.base", known, duration(_SLOWER * base), why, figures)


def _in_vain(runs: TaskRuns, settings: Settings, deaths: Deaths, figures: Figures) -> Recommendation:
    why = (
        f"{deaths.failed:,} jobs failed to the end, and used {deaths.retries:,} of its "
        f"{runs.count(Outcome.RETRIED):,} retries: what fails here keeps failing. Raise RejectJob for such errors"
    )
    return Recommendation("task", runs.task, "max_attempts", _attempts(settings), f"{_ONCE_MORE}", why, figures)


def _too_few(runs: TaskRuns, settings: Settings, deaths: Deaths, vain: float, figures: Figures) -> Recommendation:
    now = settings.max_attempts
    why = f"{percent(1 - vain)} of its retries belonged to jobs that did not die, yet {deaths.failed:,} jobs did"
    if now is not None:
        why += f": {now} attempts are over in about {duration(_span(now, settings.backoff))}"
    wanted = f"{now + _MORE}" if now is not None else f"{_MORE} more"
    return Recommendation("task", runs.task, "max_attempts", _attempts(settings), wanted, why, figures)


def _span(attempts: int, backoff: Backoff | None) -> float:
    """Seconds that the pauses between so many attempts add up to, without their random part."""
    policy = backoff or Backoff()
    long = max(attempts - 1 - _DOUBLINGS, 0)
    return long * policy.cap + sum(min(policy.base * 2.0**n, policy.cap) for n in range(min(attempts - 1, _DOUBLINGS)))


def _attempts(settings: Settings) -> str | None:
    return None if settings.max_attempts is None else f"{settings.max_attempts}"
