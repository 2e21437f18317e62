"""The demo's figures, counted in the database after everything ran: nothing here trusts the demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Double, Select, and_, cast, exists, func, or_, select

from sa_jobqueue.cli.demo.business import Delivery, RepositoryEvent
from sa_jobqueue.models import DeadLetter, Job, JobLog, Rollup
from sa_jobqueue.states import Outcome

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["Figures", "count"]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the database says; ``killed`` (worker processes) and ``seconds`` (in all) it cannot know.

    ``lost`` are deliveries with neither effect nor dead letter nor live job, ``unfinished`` jobs are still live, and
    ``requeued`` ones came back from an expired lease. The percentiles are of handler run times; ``jobs_per_second``
    goes from the first claim to the last acknowledgement, with all that was waited for in between.
    """

    enqueued: int
    deliveries: int
    effects: int
    duplicate_effects: int
    lost: int
    unfinished: int
    requeued: int
    retries: int
    duplicates_suppressed: int
    dead_letters: int
    killed: int
    seconds: float
    p50_seconds: float | None
    p99_seconds: float | None
    jobs_per_second: float | None

    def problems(self) -> list[str]:
        """Why the promise was not kept, or not put to the test; empty if each delivery has one effect or is dead."""
        broken = {
            f"{self.lost} deliveries are lost": self.lost,
            f"{self.duplicate_effects} effects are duplicates": self.duplicate_effects,
            f"{self.unfinished} jobs are unfinished": self.unfinished,
            "no worker was killed while it held a job": not self.killed,
            "no job came back from the killed worker": self.killed and not self.requeued,
        }
        return [problem for problem, is_so in broken.items() if is_so]


def count(session: Session, *, killed: int, seconds: float) -> Figures:
    """Read all figures in one transaction."""
    log = session.execute(_runs()).one()
    return Figures(
        enqueued=session.scalar(select(func.coalesce(func.sum(Delivery.received), 0))) or 0,
        deliveries=_rows(session, Delivery),
        effects=_rows(session, RepositoryEvent),
        duplicate_effects=_rows(session, RepositoryEvent) - (session.scalar(_delivered()) or 0),
        lost=session.scalar(_lost()) or 0,
        unfinished=_rows(session, Job),
        requeued=session.scalar(_requeued()) or 0,
        retries=log.retries,
        duplicates_suppressed=log.duplicates,
        dead_letters=_rows(session, DeadLetter),
        killed=killed,
        seconds=round(seconds, 3),
        p50_seconds=_rounded(log.p50),
        p99_seconds=_rounded(log.p99),
        jobs_per_second=_rounded(log.rate),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _rows(session: Session, model: type[Any]) -> int:
    return session.scalar(select(func.count()).select_from(model)) or 0


def _delivered() -> Select[Any]:
    return select(func.count(RepositoryEvent.delivery_id.distinct()))


def _lost() -> Select[Any]:
    found = or_(
        exists().where(RepositoryEvent.delivery_id == Delivery.id),
        exists().where(DeadLetter.dedup_key == Delivery.id),
        exists().where(Job.dedup_key == Delivery.id),
    )
    return select(func.count()).select_from(Delivery).where(~found)


def _requeued() -> Select[Any]:
    return select(cast(func.sum(Rollup.count), BigInteger)).where(
        and_(Rollup.metric == Outcome.REQUEUED, Rollup.bucket < 0)
    )


def _runs() -> Select[Any]:
    done = JobLog.outcome == Outcome.DONE
    run_time = func.extract("epoch", JobLog.finished_at - JobLog.claimed_at).cast(Double)
    span = func.extract("epoch", func.max(JobLog.finished_at) - func.min(JobLog.claimed_at)).cast(Double)
    finished = func.count().filter(JobLog.outcome.in_([Outcome.DONE, Outcome.DUPLICATE]))
    return select(
        func.count().filter(JobLog.outcome == Outcome.RETRIED).label("retries"),
        func.count().filter(JobLog.outcome == Outcome.DUPLICATE).label("duplicates"),
        func.percentile_cont(0.5).within_group(run_time).filter(done).label("p50"),
        func.percentile_cont(0.99).within_group(run_time).filter(done).label("p99"),
        cast(finished / func.nullif(span, 0), Double).label("rate"),
    )
