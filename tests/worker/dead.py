"""Reading the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sa_jobqueue import EnqueuedJob
    from tests.behaviour.observer import Observer


def only_error(observer: Observer, job: EnqueuedJob) -> str:
    """The error of a job that is dead after one attempt."""
    ((entry,),) = [dead.errors for dead in observer.dead(job.id)]
    return entry["error"]
