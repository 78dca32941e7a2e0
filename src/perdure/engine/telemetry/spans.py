"""The observer for OpenTelemetry: a span and a measurement per turn, model call and tool run.

A span is current while its work runs, so spans of an HTTP library or an MCP server become its
children. The parent of a turn's span is the current span at the start of the turn, or else the W3C
context in ``$TRACEPARENT``. Content is reported only with `has_content`. This module loads the API
of OpenTelemetry, not its SDK.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from perdure.engine.telemetry import names
from perdure.engine.telemetry.attributes import (
    MAX_CONTENT,
    Attributes,
    error_of,
    model_name,
    of_call,
    of_model,
    of_tool,
    of_usage,
    scope_attributes,
    shown_args,
    shown_message,
    usage_of,
)
from perdure.engine.telemetry.requests import LIBRARY, ToldModels
from perdure.engine.turns import inputs
from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.effects import CallModel, Effect, RunTool
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.observer import NOBODY, Happened, TurnEnded
from perdure.engine.turns.state import OpenCall, TurnState
from perdure.errors import PerdureError
from perdure.events.scope import scope
from perdure.models.protocol import ModelClient
from perdure.secrets.mask import mask_secrets
from perdure.session.clock import Clock
from perdure.session.ledger import ToolStarted
from perdure.session.messages import Usage


class SpanObserver:
    """Reports turns and effects to the program's telemetry providers, or to the given providers."""

    def __init__(
        self,
        clock: Clock,
        *,
        has_content: bool = False,
        environment: Mapping[str, str] | None = None,
        namespace: str | None = None,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        self._clock = clock
        self._meters = meters
        self._has_content = has_content
        self._environment = environment or {}
        self._of: Attributes = {} if namespace is None else {names.NAMESPACE: namespace}
        self._tracer = trace.get_tracer(LIBRARY, tracer_provider=tracers)
        meter = metrics.get_meter(LIBRARY, meter_provider=meters)
        histogram = meter.create_histogram
        tokens, seconds = names.TOKENS, names.SECONDS
        self._tokens = histogram(
            names.TOKEN_USAGE, unit="{token}", explicit_bucket_boundaries_advisory=tokens
        )
        self._calls, self._turns, self._tools = (
            histogram(name, unit="s", explicit_bucket_boundaries_advisory=seconds)
            for name in (names.OPERATION_DURATION, names.TURN_DURATION, names.TOOL_DURATION)
        )
        self._cost = meter.create_counter(names.COST_TOTAL, unit="{microcent}")
        self._running = meter.create_up_down_counter(names.TURNS_RUNNING, unit="{turn}")

    @contextmanager
    def turn(self, config: TurnConfig, state: TurnState, happened: Input) -> Generator[TurnEnded]:
        """Open the span ``invoke_agent`` around the part of a turn that runs in this process."""
        about: Attributes = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: config.agent}
        if self._has_content and isinstance(happened, inputs.Begin):
            about[names.INPUT_MESSAGES] = shown_message(happened.message)
        ended: list[TurnState] = []
        started_s = self._clock.steady_s()
        running: Attributes = {**self._of, names.AGENT_NAME: config.agent}
        self._running.add(1, running)
        try:
            name = f"{names.INVOKE_AGENT} {config.agent}"
            with self._span(name, SpanKind.INTERNAL, about) as span:
                yield ended.append
                if ended:
                    self._turn_ended(span, ended[-1])
        finally:
            self._running.add(-1, running)
        end = ended[-1].finished.end if ended and ended[-1].finished else "left"
        labels: Attributes = {
            **self._of,
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: config.agent,
            names.TURN_END: end,
        }
        self._turns.record(self._clock.steady_s() - started_s, labels)

    def models(self, models: ModelClient) -> ModelClient:
        """Return a client that reports the requests to `models` on the spans of the calls."""
        return ToldModels(
            models,
            self._clock,
            has_content=self._has_content,
            meters=self._meters,
            about=self._of,
        )

    def effect(self, config: TurnConfig, effect: Effect) -> AbstractContextManager[Happened]:
        """Open the span ``chat`` or ``execute_tool``; an effect that only waits has no span."""
        if isinstance(effect, CallModel):
            return self._call(effect.call, config)
        if isinstance(effect, RunTool):
            return self._tool(effect.tool.started)
        return NOBODY

    # ------------------------------------------------------------ inside

    @contextmanager
    def _call(self, call: OpenCall, config: TurnConfig) -> Generator[Happened]:
        about = of_call(call, config.max_output_tokens)
        labels = {**self._of, **of_model(call.model)}
        came: list[Input] = []
        started_s = self._clock.steady_s()
        with self._span(f"{names.CHAT} {model_name(call.model)}", SpanKind.CLIENT, about) as span:
            yield came.append
            happened = came[-1] if came else None
            self._call_ended(span, happened)
        usage, error = usage_of(happened), error_of(happened)
        if error is not None:
            labels[names.ERROR_TYPE] = error
        self._calls.record(self._clock.steady_s() - started_s, labels)
        if usage is not None:
            self._add_usage(usage, labels)

    @contextmanager
    def _tool(self, started: ToolStarted) -> Generator[Happened]:
        about = of_tool(started)
        if self._has_content:
            about[names.TOOL_ARGUMENTS] = shown_args(started.input)
        came: list[Input] = []
        started_s = self._clock.steady_s()
        name = f"{names.EXECUTE_TOOL} {started.tool}"
        with self._span(name, SpanKind.INTERNAL, about) as span:
            yield came.append
            returned = came[-1] if came else None
            _mark(span, error_of(returned))
            outcome = returned.outcome if isinstance(returned, inputs.ToolReturned) else "aborted"
            span.set_attribute(names.OUTCOME, outcome)
            if self._has_content and isinstance(returned, inputs.ToolReturned):
                span.set_attribute(names.TOOL_RESULT, mask_secrets(returned.text)[:MAX_CONTENT])
        labels: Attributes = {
            **self._of,
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: started.tool,
            names.OUTCOME: outcome,
        }
        if (error := error_of(returned)) is not None:
            labels[names.ERROR_TYPE] = error
        self._tools.record(self._clock.steady_s() - started_s, labels)

    @contextmanager
    def _span(self, name: str, kind: SpanKind, about: Attributes) -> Generator[Span]:
        """Open a span that is current during the block. Spans have error codes, not error texts."""
        with self._tracer.start_as_current_span(
            name,
            context=self._parent(),
            kind=kind,
            attributes={**scope_attributes(scope()), **about},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                code = error.code if isinstance(error, PerdureError) else type(error).__name__
                _mark(span, code)
                raise

    def _parent(self) -> Context | None:
        """Return the parent context of a turn's span; None means the current context."""
        if trace.get_current_span().get_span_context().is_valid:
            return None
        carried = {
            name.lower(): self._environment[name]
            for name in ("TRACEPARENT", "TRACESTATE")
            if name in self._environment
        }
        return TraceContextTextMapPropagator().extract(carried) if carried else None

    def _turn_ended(self, span: Span, state: TurnState) -> None:
        finished = state.finished
        if finished is None:
            return
        span.set_attributes({names.TURN_END: finished.end, **of_usage(finished.usage)})
        if finished.end == "error":
            _mark(span, finished.failure or finished.end)
        if self._has_content and state.answer is not None:
            span.set_attribute(names.OUTPUT_MESSAGES, shown_message(state.answer))

    def _call_ended(self, span: Span, happened: Input | None) -> None:
        _mark(span, error_of(happened))
        span.set_attributes(of_usage(usage_of(happened)))
        if not isinstance(happened, inputs.Answered):
            return
        message = happened.message
        if message.model is not None:
            span.set_attribute(names.RESPONSE_MODEL, model_name(message.model))
        if message.stop_reason is not None:
            span.set_attribute(names.FINISH_REASONS, (message.stop_reason,))
        if self._has_content:
            span.set_attribute(names.OUTPUT_MESSAGES, shown_message(message))

    def _add_usage(self, usage: Usage, labels: Attributes) -> None:
        read = usage.total_tokens - usage.output_tokens
        self._tokens.record(read, {**labels, names.TOKEN_TYPE: "input"})
        self._tokens.record(usage.output_tokens, {**labels, names.TOKEN_TYPE: "output"})
        if usage.cost_microcents:
            self._cost.add(usage.cost_microcents, labels)


def _mark(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute(names.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
