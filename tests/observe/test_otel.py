"""One span for each run, linked to where the job was enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sa_jobqueue import Backoff, TaskRegistry, current_job
from sa_jobqueue.observe import LeaseWasLost, RunEnded, RunStarted, RunUnrecorded
from sa_jobqueue.observe.otel import TraceSubscriber, trace_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from sa_jobqueue import ClaimedJob


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> trace.Tracer:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("test")


def test_a_run_is_a_trace_of_its_own_linked_to_the_span_that_enqueued(
    session: Session, work: Callable[..., None], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    tasks = TaskRegistry()
    tasks.task(name="book", queue="shop")(lambda _session: None)
    with tracer.start_as_current_span("request") as request:
        tasks["book"].using(headers=trace_headers()).enqueue(session)
        session.commit()

    with tracer.start_as_current_span("the worker's own"):
        work(tasks, TraceSubscriber(tracer))

    run = next(span for span in spans.get_finished_spans() if span.name == "process book")
    assert [link.context.span_id for link in run.links] == [request.get_span_context().span_id]
    assert (run.parent, run.context.trace_id == request.get_span_context().trace_id) == (None, False)
    assert (run.attributes["messaging.destination.name"], run.attributes["sa_jobqueue.outcome"]) == ("shop", "done")


def test_spans_of_a_handler_can_be_made_inside_the_run(
    session: Session, work: Callable[..., None], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    tasks, traces = TaskRegistry(), TraceSubscriber(tracer)

    @tasks.task
    def book(_session: Session) -> None:
        with traces.inside(current_job()), tracer.start_as_current_span("query"):
            pass

    book.enqueue(session)
    session.commit()
    work(tasks, traces)

    named = {span.name: span for span in spans.get_finished_spans()}
    assert named["query"].parent.span_id == named["process book"].context.span_id


def test_each_attempt_has_its_span_and_failures_are_marked_without_their_text(
    session: Session, work: Callable[..., None], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    tasks, traces = TaskRegistry(), TraceSubscriber(tracer)

    @tasks.task(max_attempts=2, backoff=Backoff(base=0.001, jitter=0))
    def book(_session: Session, password: str) -> None:
        with traces.inside(current_job()):
            raise ValueError(password)

    book.enqueue(session, password="S3CRET")  # noqa: S106 (the secret that must not show)
    session.commit()
    work(tasks, traces)

    runs = spans.get_finished_spans()
    assert [run.attributes["sa_jobqueue.outcome"] for run in runs] == ["retried", "dead"]
    assert {(run.status.status_code, run.attributes["error.type"]) for run in runs} == {
        (trace.StatusCode.ERROR, "ValueError")
    }
    assert "S3CRET" not in "".join(run.to_json() for run in runs)


@pytest.mark.parametrize("headers", [{}, {"traceparent": "nonsense"}, {"traceparent": 7}, {"traceparent": None}])
def test_without_a_usable_trace_context_there_is_no_link(
    headers: dict, job: Callable[..., ClaimedJob], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    traces, run = TraceSubscriber(tracer), job(headers=headers)

    traces(RunStarted("w", run))
    traces(RunEnded("w", run, "done", 0.1))

    assert [len(span.links) for span in spans.get_finished_spans()] == [0]


def test_a_lost_lease_ends_its_span_and_leaves_the_new_owners_open(
    job: Callable[..., ClaimedJob], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    traces = TraceSubscriber(tracer)
    for token in (1, 2):
        traces(RunStarted("w", job(token=token)))

    traces(LeaseWasLost("w", job(token=1), 0.1))

    [lost] = spans.get_finished_spans()
    assert (lost.attributes["sa_jobqueue.token"], lost.attributes["sa_jobqueue.outcome"]) == (1, "lease_lost")


def test_a_run_that_could_not_be_recorded_has_an_end_all_the_same(
    job: Callable[..., ClaimedJob], spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    traces = TraceSubscriber(tracer)
    traces(RunStarted("w", job()))

    traces(RunUnrecorded("w", job(), 0.1, OSError()))

    assert [span.attributes["sa_jobqueue.outcome"] for span in spans.get_finished_spans()] == ["unrecorded"]


def test_outside_any_span_there_are_no_headers_to_send() -> None:
    assert trace_headers() == {}


def test_a_handler_that_no_traced_worker_runs_goes_on_without_a_span(
    job: Callable[..., ClaimedJob], tracer: trace.Tracer
) -> None:
    with TraceSubscriber(tracer).inside(job()):
        assert not trace.get_current_span().get_span_context().is_valid
