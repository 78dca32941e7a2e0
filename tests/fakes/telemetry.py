"""OpenTelemetry as a program sets it up; its spans and measurements stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure.engine.telemetry.spans import SpanObserver
from perdure.engine.turns.observer import Observer
from perdure.session.clock import Clock


class Telemetry:
    """The measurements, and the spans in the order in which they ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def observer(self, clock: Clock, **options: Any) -> SpanObserver:
        """Return an observer that reports to this object."""
        return SpanObserver(clock, tracers=self.tracers, meters=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return all spans that have ended."""
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        """Return the only span with that name."""
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self, metric: str) -> list[Any]:
        """Return the measurements of `metric`, one for each set of attributes."""
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == metric
            for point in found.data.data_points
        ]


def always(observer: Observer) -> Callable[..., Observer]:
    """Return a function that always chooses `observer`."""

    def chosen(*_: object, **__: object) -> Observer:
        return observer

    return chosen


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of a span."""
    return cast("Mapping[str, Any]", span.attributes or {})
