"""Report the request of each model call, and the start of the answer, to OpenTelemetry.

The request is reported on the current span, which is the span of the model call. The content of a
request is reported only if the program asks for it. Answers are passed through unchanged.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Span

from perdure.engine.telemetry import names
from perdure.engine.telemetry.attributes import (
    Attributes,
    of_model,
    shown_instructions,
    shown_messages,
    shown_tools,
)
from perdure.engine.telemetry.isolation import attempt
from perdure.models.protocol import Delta, ModelClient, ModelInfo, ModelRequest, streaming
from perdure.session.clock import Clock

LIBRARY = "perdure"


class ToldModels:
    """A `ModelClient` that reports the requests that pass through it."""

    def __init__(
        self,
        models: ModelClient,
        clock: Clock,
        *,
        has_content: bool = False,
        meters: MeterProvider | None = None,
        about: Attributes | None = None,
    ) -> None:
        self._models = models
        self._about = about or {}
        self._clock = clock
        self._has_content = has_content
        meter = metrics.get_meter(LIBRARY, meter_provider=meters)
        self._first: Histogram = meter.create_histogram(
            names.FIRST_CHUNK, unit="s", explicit_bucket_boundaries_advisory=names.SECONDS
        )

    def info(self, model: str) -> ModelInfo:
        """Return the facts about `model`."""
        return self._models.info(model)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta]:
        """Call the model, and report the request.

        Raises: ModelError if the call fails.
        """
        span = trace.get_current_span()
        if span.is_recording():
            attempt(lambda: self._tell(span, request), None)
        started_s, has_begun = self._clock.steady_s(), False
        async with streaming(self._models, request) as deltas:
            async for delta in deltas:
                if not has_begun:
                    has_begun = True
                    after_s = self._clock.steady_s() - started_s
                    attempt(partial(self._on_first_token, span, request.model, after_s), None)
                yield delta

    def _tell(self, span: Span, request: ModelRequest) -> None:
        span.set_attribute(names.REQUEST_STREAM, value=True)
        if request.temperature is not None:
            span.set_attribute(names.REQUEST_TEMPERATURE, request.temperature)
        if not self._has_content:
            return
        span.set_attribute(names.INPUT_MESSAGES, shown_messages(request.messages))
        if request.system:
            span.set_attribute(names.INSTRUCTIONS, shown_instructions(request.system))
        if request.tools:
            span.set_attribute(names.TOOL_DEFINITIONS, shown_tools(request.tools))

    def _on_first_token(self, span: Span, model: str, after_s: float) -> None:
        span.set_attribute(names.RESPONSE_FIRST_CHUNK, after_s)
        self._first.record(after_s, {**self._about, **of_model(model)})
