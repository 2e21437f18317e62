"""Metrics for Prometheus: what this process's worker does, and what is in the queues.

No label and no value comes from a job's arguments, headers or error texts. Needs ``sa-jobqueue[prometheus]``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatchmethod

from sa_jobqueue.histogram import BUCKETS, upper_bound
from sa_jobqueue.observe.events import (
    Event,
    HeartbeatFailed,
    LeaseWasLost,
    Outage,
    ProcessEnded,
    RunEnded,
    RunUnrecorded,
    SweepDone,
)
from sa_jobqueue.observe.sampling import Sampler
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import QueueStats

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    msg = "Prometheus metrics need its client: pip install 'sa-jobqueue[prometheus]'"
    raise ImportError(msg) from error

__all__ = ["PrometheusSubscriber", "QueueCollector"]

_SECONDS = [upper_bound(bucket) for bucket in range(0, BUCKETS, 2)]


class PrometheusSubscriber:
    """Counts a worker's events; hand it to ``Worker(subscribers=[log_event, PrometheusSubscriber()])``.

    One object may serve all workers of a process. Workers' names are no label: they change with every start.

    Args:
        registry: where the metrics are registered; by default the client's own.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        to = REGISTRY if registry is None else registry
        self._runs = Counter(
            "sa_jobqueue_runs", "Runs that ended, by outcome.", ["queue", "task", "outcome"], registry=to
        )
        self._seconds = Histogram(
            "sa_jobqueue_run_seconds", "Time in handlers.", ["queue", "task"], buckets=_SECONDS, registry=to
        )
        self._lost = Counter(
            "sa_jobqueue_lost_leases", "Runs of which nothing was committed.", ["queue", "task"], registry=to
        )
        self._unrecorded = Counter(
            "sa_jobqueue_unrecorded_runs", "Runs whose end could not be stored.", ["queue", "task"], registry=to
        )
        self._requeued = Counter(
            "sa_jobqueue_requeued", "Jobs taken back from workers that were lost.", ["queue"], registry=to
        )
        self._expired = Counter(
            "sa_jobqueue_expired_dead", "Jobs given up because their last worker was lost.", ["queue"], registry=to
        )
        self._outages = Counter("sa_jobqueue_outages", "Times that the database did not answer.", registry=to)
        self._heartbeats = Counter("sa_jobqueue_heartbeat_failures", "Series of failed heartbeats.", registry=to)
        self._processes = Counter(
            "sa_jobqueue_processes_replaced", "Worker processes that ended unasked.", ["code"], registry=to
        )

    def __call__(self, event: Event) -> None:
        """Count one event, from any thread."""
        self._count(event)

    @singledispatchmethod
    def _count(self, event: Event) -> None:
        """Other events have no metric."""

    @_count.register
    def _(self, event: RunEnded) -> None:
        job = event.job
        self._runs.labels(job.queue, job.task, str(event.outcome)).inc()
        if event.outcome != Outcome.DUPLICATE:
            self._seconds.labels(job.queue, job.task).observe(event.seconds)

    @_count.register
    def _(self, event: LeaseWasLost) -> None:
        self._lost.labels(event.job.queue, event.job.task).inc()

    @_count.register
    def _(self, event: RunUnrecorded) -> None:
        self._unrecorded.labels(event.job.queue, event.job.task).inc()

    @_count.register
    def _(self, event: SweepDone) -> None:
        self._requeued.labels(event.queue).inc(event.swept.requeued)
        self._expired.labels(event.queue).inc(event.swept.dead)

    @_count.register
    def _(self, _event: Outage) -> None:
        self._outages.inc()

    @_count.register
    def _(self, _event: HeartbeatFailed) -> None:
        self._heartbeats.inc()

    @_count.register
    def _(self, event: ProcessEnded) -> None:
        if event.restart_in is not None:
            self._processes.labels(str(event.code)).inc()


class QueueCollector(Collector):
    """What is in the queues, for the whole fleet, from a sample that is taken at most every ``max_age`` seconds.

    A scrape waits at most ``patience`` seconds. If the database refuses, or has not answered for ``stale_after``
    seconds, it says ``sa_jobqueue_up 0`` and nothing about the queues: an old number would look like a healthy one.
    Register it in one process, with ``registry.register(QueueCollector(read))``.

    Args:
        read: answers with ``JobSession(session).stats()``, from a session of its own; called on a thread.
        queues: queues that have series even while they are empty; those that were ever seen have them too.
        max_age: seconds that a sample serves, also one that says that the database is down.
        patience: seconds that one scrape waits for a new sample.
        stale_after: seconds that the last sample serves on while the database is slow to answer.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[QueueStats]],
        *,
        queues: Iterable[str] = (),
        max_age: float = 15.0,
        patience: float = 0.5,
        stale_after: float = 120.0,
    ) -> None:
        self._sampler = Sampler(read, max_age=max_age, patience=patience, stale_after=stale_after)
        self._lock = threading.Lock()
        self._known = set(queues)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Names only, so that registering does not ask the database."""
        return _families({}, up=False)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges of one scrape."""
        sample = self._sampler.latest()
        if sample is None or sample.value is None:
            return _families({}, up=False)
        stats = {each.queue: each for each in sample.value}
        with self._lock:
            self._known.update(stats)
            known = sorted(self._known)
        return _families({queue: stats.get(queue, QueueStats(queue)) for queue in known}, up=True)


_GAUGES = (
    ("queued", "Jobs that may run now."),
    ("scheduled", "Jobs that wait for their time or for a retry."),
    ("claimed", "Jobs that a worker holds."),
    ("dead", "Open dead letters."),
    ("lag_seconds", "Age of the oldest job that may run; 0 if there is none."),
)


def _families(stats: dict[str, QueueStats], *, up: bool) -> list[GaugeMetricFamily]:
    answering = GaugeMetricFamily("sa_jobqueue_up", "1 if the database answered, 0 if not.", value=float(up))
    return [answering, *(_family(name, text, stats) for name, text in _GAUGES)]


def _family(name: str, text: str, stats: dict[str, QueueStats]) -> GaugeMetricFamily:
    unit = name if name.endswith("seconds") else f"{name}_jobs"
    family = GaugeMetricFamily(f"sa_jobqueue_{unit}", text, labels=["queue"])
    for queue, each in stats.items():
        family.add_metric([queue], float(getattr(each, name)))
    return family
