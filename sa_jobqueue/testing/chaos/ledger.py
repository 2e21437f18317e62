"""Questions to the database, each on a fresh connection: the server may have been restarted since the last one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, create_engine, func, select, text
from sqlalchemy.pool import NullPool

from sa_jobqueue.migrations import runner
from sa_jobqueue.models import DeadLetter, Job
from sa_jobqueue.states import State
from sa_jobqueue.testing.chaos.remains import Effect, Remains, Snapshot, Start
from sa_jobqueue.testing.chaos.tables import Base, EffectRow, Order, RedriveRow, StartRow

__all__ = ["Held", "Ledger"]

_NAMED_OF_THOSE_LEFT: Final = 20
_BACKENDS = text(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name ORDER BY pid"
)


@dataclass(frozen=True, slots=True)
class Held:
    """A claim: the job and the token that it is held under."""

    job_id: int
    token: int


class Ledger:
    """Reads the database of a chaos run, and ends backends of it."""

    def __init__(self, url: str) -> None:
        self._engine: Engine = create_engine(
            url, poolclass=NullPool, connect_args={"application_name": "chaos-injector"}
        )

    def prepare(self) -> None:
        """Make all tables in an empty database."""
        runner.migrate(self._engine)
        Base.metadata.create_all(self._engine)

    def holders(self) -> set[str]:
        """The names of the workers that hold a claim."""
        return {row.claimed_by for row in self._all(select(Job.claimed_by).where(Job.claimed_by.is_not(None)))}

    def held_by(self, worker: str) -> list[Held]:
        """The live claims of a worker, by its name."""
        query = select(Job.id, Job.token).where(Job.claimed_by == worker)
        return [Held(row.id, row.token) for row in self._all(query)]

    def expired(self, held: Sequence[Held]) -> int:
        """How many of these claims are over: the row is gone, under a later token, or its lease has run out."""
        lasting = select(Job.id, Job.token).where(
            Job.id.in_([each.job_id for each in held]),
            Job.status == State.CLAIMED,
            Job.visible_at > func.statement_timestamp(),
        )
        return len(set(held) - {Held(row.id, row.token) for row in self._all(lasting)})

    def taken_over(self, held: Sequence[Held]) -> int:
        """How many of these claims somebody else has followed: the row is gone, or under a later token."""
        query = select(Job.id, Job.token).where(Job.id.in_([each.job_id for each in held]))
        return len(set(held) - {Held(row.id, row.token) for row in self._all(query)})

    def terminate(self, role: str | None, target: int) -> bool:
        """End the ``target``-th backend of a role; False if there is none, or it ended by itself."""
        with self._begin() as connection:
            pids = connection.execute(_BACKENDS, {"name": f"chaos-{role}"}).scalars().all()
            if not pids:
                return False
            return bool(connection.scalar(select(func.pg_terminate_backend(pids[target % len(pids)]))))

    def alive(self) -> int:
        """How many jobs are not finished."""
        return int(self._all(select(func.count()).select_from(Job))[0][0])

    def describe_alive(self) -> list[str]:
        """The jobs that are left, for a person to read; the first of them if there are many."""
        columns = (Job.id, Job.task, Job.status, Job.attempt, Job.token, Job.claimed_by, Job.visible_at, Job.args)
        rows = self._all(select(*columns).order_by(Job.id).limit(_NAMED_OF_THOSE_LEFT))
        return [", ".join(f"{name}={value}" for name, value in row._asdict().items()) for row in rows]

    def remains(self) -> Remains:
        """What is left, read when nothing changes any more."""
        tag = DeadLetter.args["tag"].as_string()
        letters = {row.job_id: row.tag for row in self._all(select(DeadLetter.job_id, tag.label("tag")))}
        return Remains(
            orders={row.tag: row.key for row in self._all(select(Order.tag, Order.key))},
            starts=tuple(map(_start, self._all(select(StartRow.__table__)))),
            effects=tuple(map(_effect, self._all(select(EffectRow.__table__)))),
            deaths=tuple(row.tag for row in self._all(select(tag.label("tag")))),
            redrives=tuple(letters[row.job_id] for row in self._all(select(RedriveRow.job_id))),
            alive=frozenset(row.tag for row in self._all(select(Job.args["tag"].as_string().label("tag")))),
        )

    def _all(self, query: Any) -> Sequence[Row[Any]]:
        with self._begin() as connection:
            return connection.execute(query).all()

    def _begin(self) -> AbstractContextManager[Connection]:
        return self._engine.begin()


def _start(row: Row[Any]) -> Start:
    return Start(row.run, row.tag, row.token, Snapshot.parse(row.snapshot))


def _effect(row: Row[Any]) -> Effect:
    return Effect(row.run, row.tag, row.token, row.transaction, row.key)
