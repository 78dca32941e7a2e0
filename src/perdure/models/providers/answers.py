"""The library's events of an answer as our deltas, and its usage as ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic_ai.messages import (
    ModelResponsePart,
    ModelResponsePartDelta,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.usage import RequestUsage

from perdure.models.protocol import Delta, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.stream import repair_unicode
from perdure.session.messages import Usage


class EventMapper:
    """Turns the events of one answer into deltas.

    `has_begun` says that something came.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._halves: dict[int, str] = {}

    def deltas_of(self, event: ModelResponseStreamEvent) -> Iterator[Delta]:
        """The deltas that `event` stands for; most events give one, some none."""
        self.has_begun = True
        if isinstance(event, PartStartEvent):
            yield from self._started(event.index, event.part)
        elif isinstance(event, PartDeltaEvent):
            yield from self._continued(event.index, event.delta)

    def _started(self, index: int, part: ModelResponsePart) -> Iterator[Delta]:
        if isinstance(part, TextPart):
            yield from self._words(index, part.content, TextDelta)
        elif isinstance(part, ThinkingPart):
            yield from self._words(index, part.content, ThinkingDelta)
        elif isinstance(part, ToolCallPart):
            yield ToolCallDelta(index, part.tool_call_id, part.tool_name, _json(part.args))

    def _continued(self, index: int, delta: ModelResponsePartDelta) -> Iterator[Delta]:
        if isinstance(delta, TextPartDelta):
            yield from self._words(index, delta.content_delta, TextDelta)
        elif isinstance(delta, ThinkingPartDelta):
            yield from self._words(index, delta.content_delta or "", ThinkingDelta)
        elif isinstance(delta, ToolCallPartDelta) and delta.args_delta:
            yield ToolCallDelta(index, json=_json(delta.args_delta))

    def _words(
        self, index: int, text: str, make: type[TextDelta] | type[ThinkingDelta]
    ) -> Iterator[Delta]:
        """A delta of `text`; half a surrogate pair at its end waits for the other half."""
        text = self._halves.pop(index, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[index] = text[-1]
            text = text[:-1]
        if text:
            yield make(repair_unicode(text))


def usage_of(usage: RequestUsage, cost_microcents: int | None) -> Usage | None:
    """`usage` in classes that do not overlap; None when the provider reported none."""
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return Usage(
        input_tokens=max(usage.input_tokens - cached, 0),
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_microcents=cost_microcents,
    )


def _json(args: str | Mapping[str, object] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args) if args else ""
