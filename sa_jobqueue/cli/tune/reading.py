"""One look at a queue and its server. Each part is a short read-only transaction; one that is refused is told apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from sa_jobqueue.cli.tune import catalog
from sa_jobqueue.cli.tune.observed import Deaths, Fleet, Observation, QueueLoad, Server, Settings, TaskRuns, Unseen
from sa_jobqueue.histogram import mean
from sa_jobqueue.models import Models
from sa_jobqueue.statements import tune
from sa_jobqueue.statements.rollup import OUTCOME
from sa_jobqueue.states import Outcome

__all__ = ["observe"]

T = TypeVar("T")

_MODELS: Final = Models()
_FLUSH: Final = "what a flush of the WAL to disk takes"
_LEAST_COUNTED: Final = 60.0
_PATIENCE: Final = text("SELECT set_config('statement_timeout', '10s', true)")
"""A look at a busy server must not become a burden of its own."""


def observe(
    connection: Connection, schema: str | None, window: timedelta, fleet: Fleet, declared: Mapping[str, Settings]
) -> Observation:
    """Look at everything that this role may see.

    Args:
        connection: not in a transaction; mapped to ``schema``, and read-only.
        schema: where the tables are; None goes by the search path.
        window: how far to look back.
        fleet: what is known of the workers.
        declared: settings by task, from the application's own registry.

    Raises:
        DBAPIError: the connection broke, or the counters may not be read, without which there is nothing to say.
    """
    looks = _Looks(connection, {"window": window})
    with looks.reading():
        clock = connection.execute(tune.clock(_MODELS), looks.given).one()
        counts = connection.execute(tune.counts(_MODELS), looks.given).all()
        busiest = {row.task: row.runs for row in connection.execute(tune.busiest(_MODELS), looks.given)}
    settings = {**(looks.look("settings of live jobs", _settings) or {}), **declared}
    waiting = looks.look("waiting jobs", _waiting) or {}
    return Observation(
        at=clock.at,
        window=window.total_seconds(),
        counted=max((clock.at - clock.since).total_seconds(), _LEAST_COUNTED),
        fleet=fleet,
        tasks=tuple(_tasks(counts, busiest)),
        settings=settings,
        deaths=looks.look("dead letters", _deaths) or {},
        queues=tuple(_queues(counts, waiting, settings)),
        server=_server(looks),
        **_of_catalog(looks, schema),
    )


@dataclass(slots=True)
class _Looks:
    """Looks at one database, each by itself, and what came of those that were refused."""

    connection: Connection
    given: dict[str, Any]
    refused: list[Unseen] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A transaction whose statements are given up after ten seconds."""
        with self.connection.begin():
            self.connection.execute(_PATIENCE)
            yield

    def look(self, what: str, at: Callable[[Connection, dict[str, Any]], T]) -> T | None:
        """What ``at`` reads; None, and a word about why, if the server refuses."""
        try:
            with self.reading():
                return at(self.connection, self.given)
        except DBAPIError as error:
            if self.connection.invalidated:
                raise
            self.refused.append(Unseen(what, str(error.orig).splitlines()[0]))
            return None


def _server(looks: _Looks) -> Server | None:
    server = looks.look("settings of the server", lambda at, _: catalog.server(at))
    if server is None:
        return None
    if not server.flushes_timed:
        looks.refused.append(Unseen(_FLUSH, "track_wal_io_timing is off"))
        return server
    return replace(server, fsync_seconds=looks.look(_FLUSH, lambda at, _: catalog.fsync_seconds(at)))


def _of_catalog(looks: _Looks, schema: str | None) -> dict[str, Any]:
    """What the statistics views say; here the refusals are complete."""
    tables = looks.look("sizes and statistics of the tables", lambda at, _: catalog.tables(at, schema)) or {}
    own_keys = looks.look("a sample of the dedup keys", lambda at, _: catalog.own_keys(at, tables))
    return {"tables": tables, "own_keys": own_keys, "unseen": tuple(looks.refused)}


def _tasks(counts: Iterable[Any], busiest: Mapping[str, int]) -> Iterator[TaskRuns]:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    buckets: dict[str, Counter[int]] = defaultdict(Counter)
    for row in counts:
        if row.bucket == OUTCOME:
            outcomes[row.task][row.metric] += row.count
        else:
            buckets[row.task][row.bucket] += row.count
    for task in sorted({*outcomes, *buckets}):
        yield TaskRuns(task, outcomes[task], buckets[task], busiest.get(task, 0))


def _queues(
    counts: Iterable[Any], waiting: Mapping[str, QueueLoad], settings: Mapping[str, Settings]
) -> Iterator[QueueLoad]:
    """Each job of a batch is counted with the time of the whole call, so a batch has its share of that only."""
    finished, runs = Counter[str](), Counter[str]()
    busy: dict[str, float] = defaultdict(float)
    for row in counts:
        if row.bucket != OUTCOME:
            runs[row.queue] += row.count
            busy[row.queue] += (mean({row.bucket: row.count}) or 0.0) * row.count / _share(settings.get(row.task))
        elif row.metric in {Outcome.DONE, Outcome.DUPLICATE, Outcome.DEAD}:
            finished[row.queue] += row.count
    for name in sorted({*waiting, *finished, *runs}):
        load = waiting.get(name, QueueLoad(name))
        yield replace(load, finished=finished[name], runs=runs[name], busy=busy[name])


def _share(settings: Settings | None) -> int:
    return (settings.batch if settings else None) or 1


def _waiting(connection: Connection, given: dict[str, Any]) -> dict[str, QueueLoad]:
    rows = connection.execute(tune.backlog(_MODELS), given)
    return {row.queue: QueueLoad(row.queue, row.ready, row.oldest, row.fresh) for row in rows}


def _settings(connection: Connection, _: dict[str, Any]) -> dict[str, Settings]:
    rows = connection.execute(tune.seen_settings(_MODELS))
    return {
        row.task: Settings(visibility_timeout=row.visibility_timeout, max_attempts=row.max_attempts) for row in rows
    }


def _deaths(connection: Connection, given: dict[str, Any]) -> dict[str, Deaths]:
    rows = connection.execute(tune.deaths(_MODELS), given)
    return {row.task: Deaths(row.failed, row.retries, row.expired) for row in rows}
