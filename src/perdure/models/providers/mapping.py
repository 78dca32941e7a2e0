"""Our messages as pydantic-ai's, and its events as our deltas. Its types go no further than here.

Media that a chat completion cannot carry, or whose bytes are not there, become a line of text that
says so: a conversation must stay sendable whatever was attached to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponsePartDelta,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as WireRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from perdure.models.protocol import (
    Delta,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from perdure.models.stream import mended
from perdure.session import messages as ours

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_OTHER_FILES = frozenset({"application/pdf", "audio/wav", "audio/mpeg"})


# Requests ----------------------------------------------------------------------------------------


def wire_messages(
    request: ModelRequest, system: str, thinking_field: str | None
) -> list[ModelMessage]:
    """The messages of `request` for the provider that pydantic-ai calls `system`.

    Reasoning is left out, but for that of the tool rounds under way when `thinking_field` names
    the field the model itself gives it in: some models refuse to go on without it.
    """
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    turn = max((i for i, m in enumerate(request.messages) if m.role == "user"), default=-1)
    wire: list[ModelMessage] = []
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            is_own = index > turn and message.model == request.model
            field = thinking_field if is_own else None
            wire.append(ModelResponse(parts=_answer_parts(message, system, field)))
            continue
        parts = _request_parts(message, names, request.media)
        previous = wire[-1] if wire else None
        if isinstance(previous, WireRequest):
            wire[-1] = WireRequest(parts=[*previous.parts, *parts])
        else:
            wire.append(WireRequest(parts=parts))
    return wire


def wire_parameters(request: ModelRequest) -> ModelRequestParameters:
    """The tools and the system prompt of `request`."""
    system = [InstructionPart(content=request.system)] if request.system else []
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
            # Schemas go out as they were declared: not every server knows strict ones.
            strict=False,
        )
        for tool in request.tools
    ]
    return ModelRequestParameters(function_tools=tools, instruction_parts=system)


def wire_settings(request: ModelRequest) -> ModelSettings:
    """The settings of `request`, those that it leaves open left out."""
    level = request.thinking_level
    settings = ModelSettings(thinking=False if level == "off" else level)
    if request.max_output_tokens is not None:
        settings["max_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    return settings


def _answer_parts(
    message: ours.Message, system: str, thinking_field: str | None
) -> list[ModelResponsePart]:
    parts: list[ModelResponsePart] = []
    for part in message.parts:
        if isinstance(part, ours.TextPart):
            parts.append(TextPart(content=part.text))
        elif isinstance(part, ours.ToolCallPart):
            parts.append(ToolCallPart(part.name, dict(part.args), tool_call_id=part.id))
        elif isinstance(part, ours.ThinkingPart) and thinking_field and not part.is_redacted:
            parts.append(ThinkingPart(part.text, id=thinking_field, provider_name=system))
    return parts


def _request_parts(
    message: ours.Message, names: Mapping[str, str], media: Mapping[str, bytes]
) -> list[ModelRequestPart]:
    if message.role == "system":
        return [SystemPromptPart(message.text)]
    if message.role == "tool":
        return _result_parts(message, names, media)
    return [UserPromptPart(_user_content(message.parts, media))]


def _result_parts(
    message: ours.Message, names: Mapping[str, str], media: Mapping[str, bytes]
) -> list[ModelRequestPart]:
    """The results, then what they show: a chat completion takes images from the user only."""
    results = [part for part in message.parts if isinstance(part, ours.ToolResultPart)]
    parts: list[ModelRequestPart] = [
        ToolReturnPart(
            tool_name=result.name or names.get(result.call_id, "tool"),
            content=result.text,
            tool_call_id=result.call_id,
            outcome="failed" if result.is_error else "success",
        )
        for result in results
    ]
    for result in results:
        if result.media:
            shown: list[UserContent] = [f"(shown by the tool call {result.call_id})"]
            shown += [_media_content(part, media) for part in result.media]
            parts.append(UserPromptPart(shown))
    return parts


def _user_content(
    parts: Sequence[ours.Part], media: Mapping[str, bytes]
) -> str | list[UserContent]:
    content: list[UserContent] = []
    for part in parts:
        if isinstance(part, ours.TextPart):
            content.append(part.text)
        elif isinstance(part, ours.MediaPart):
            content.append(_media_content(part, media))
    # Plain text goes as plain text: not every server takes a list of parts.
    texts = [item for item in content if isinstance(item, str)]
    return "\n\n".join(texts) if len(texts) == len(content) else content


def _media_content(part: ours.MediaPart, media: Mapping[str, bytes]) -> str | BinaryContent:
    data = media.get(part.handle)
    name = part.name or "attachment"
    if data is None:
        return f"({name}, {part.mime_type}, {part.byte_length} bytes: not available)"
    if part.mime_type in _IMAGES or part.mime_type in _OTHER_FILES:
        return BinaryContent(data, media_type=part.mime_type)
    if part.mime_type.startswith("text/") or part.mime_type == "application/json":
        return f"({name}, {part.mime_type})\n{data.decode(errors='replace')}"
    return f"({name}, {part.mime_type}, {len(data)} bytes: cannot be shown to this model)"


# Answers -----------------------------------------------------------------------------------------


class EventMapper:
    """Turns the events of one answer into deltas.

    `has_begun` says that something came; `thinking_field` is the field in which the reasoning did.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.thinking_field: str | None = None
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
            # ``content``: it came between tags in the text, which is no field to send it back in.
            self.thinking_field = part.id if part.id != "content" else None
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
            yield make(mended(text))


def usage_of(usage: RequestUsage, cost_microcents: int | None) -> ours.Usage | None:
    """`usage` in classes that do not overlap; None when the provider reported none."""
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return ours.Usage(
        input_tokens=max(usage.input_tokens - cached, 0),
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_microcents=cost_microcents,
    )


def _json(args: str | Mapping[str, object] | None) -> str:
    return args if isinstance(args, str) else json.dumps(args) if args else ""
