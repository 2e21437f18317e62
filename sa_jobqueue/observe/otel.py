"""Traces for OpenTelemetry: one span for each run, linked to the span that enqueued the job.

The trace context travels in the job's headers, as W3C ``traceparent`` and ``tracestate``. No attribute comes from a
job's arguments, other headers or error texts. Needs ``sa-jobqueue[otel]``: the API alone, your application brings the
SDK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatchmethod
from typing import Any

from sa_jobqueue.observe.events import Event, LeaseWasLost, RunEnded, RunStarted, RunUnrecorded
from sa_jobqueue.states import Outcome
from sa_jobqueue.values import ClaimedJob

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    msg = "traces need the OpenTelemetry API: pip install 'sa-jobqueue[otel]'"
    raise ImportError(msg) from error

__all__ = ["TraceSubscriber", "trace_headers"]

_FAILED = {Outcome.RETRIED, Outcome.DEAD}


def trace_headers() -> dict[str, str]:
    """The current trace context, to be given to enqueue as ``headers``; empty outside any span."""
    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers


class TraceSubscriber:
    """Makes the spans; hand it to ``Worker(subscribers=[log_event, TraceSubscriber()])``.

    Each run is a trace of its own with a link to the one that enqueued: retries may follow hours later. A handler makes
    its own spans part of the run's with ``with traces.inside(current_job()):``.

    Args:
        tracer: by default the global provider's, named ``sa_jobqueue``.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("sa_jobqueue")
        self._open: dict[tuple[str | None, int, int], trace.Span] = {}

    def __call__(self, event: Event) -> None:
        """Take one event, from any thread."""
        self._take(event)

    @contextmanager
    def inside(self, job: ClaimedJob) -> Iterator[None]:
        """Make the run's span the current one; without effect where no worker with this subscriber runs ``job``."""
        span = self._open.get((job.claimed_by, job.id, job.token))
        if span is None:
            yield
            return
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    @singledispatchmethod
    def _take(self, event: Event) -> None:
        """Other events are in no trace."""

    @_take.register
    def _(self, event: RunStarted) -> None:
        self._open[event.worker, event.job.id, event.job.token] = self._tracer.start_span(
            f"process {event.job.task}",
            context=Context(),
            kind=trace.SpanKind.CONSUMER,
            links=_links(event.job.headers),
            attributes=_attributes(event.job),
        )

    @_take.register
    def _(self, event: RunEnded) -> None:
        error = event.error if event.outcome in _FAILED else None
        self._end(event.worker, event.job, str(event.outcome), error)

    @_take.register
    def _(self, event: LeaseWasLost) -> None:
        self._end(event.worker, event.job, "lease_lost")

    @_take.register
    def _(self, event: RunUnrecorded) -> None:
        self._end(event.worker, event.job, "unrecorded", event.error)

    def _end(self, worker: str, job: ClaimedJob, outcome: str, error: BaseException | None = None) -> None:
        span = self._open.pop((worker, job.id, job.token), None)
        if span is None:
            return
        span.set_attribute("sa_jobqueue.outcome", outcome)
        if error is not None:
            # Not record_exception: it would add the error's text, which may quote an argument.
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(trace.StatusCode.ERROR)
        span.end()


def _links(headers: Mapping[str, Any]) -> list[trace.Link]:
    carrier = {name: value for name, value in headers.items() if isinstance(value, str)}
    context = TraceContextTextMapPropagator().extract(carrier, Context())
    enqueued_in = trace.get_current_span(context).get_span_context()
    return [trace.Link(enqueued_in)] if enqueued_in.is_valid else []


def _attributes(job: ClaimedJob) -> dict[str, str | int]:
    return {
        "messaging.system": "sa_jobqueue",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "sa_jobqueue.task": job.task,
        "sa_jobqueue.attempt": job.attempt,
        "sa_jobqueue.token": job.token,
    }
