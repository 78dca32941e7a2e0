"""Convert requests to pydantic-ai's types, which are used only in this package.

Media that the wire format does not support, or whose bytes are missing, are replaced by a line of
text that states the reason. A conversation can thus be sent whatever attachments it has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as WireRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from perdure.models.protocol import ModelRequest
from perdure.models.providers.rounds import RoundMemory, open_rounds
from perdure.session import messages as ours
from perdure.session.media.inline import MAX_NAME_CHARACTERS
from perdure.session.printable import safe

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"


def wire_messages(
    request: ModelRequest, media_types: Collection[str], rounds: RoundMemory
) -> list[ModelMessage]:
    """Return the messages of `request` for a wire format that supports media of `media_types`.

    The result contains no reasoning, except that the reasoning before the open tool calls is
    restored from `rounds`.
    """
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    under_way = len(request.messages) - len(open_rounds(request.messages))
    media = _Media(request.media, media_types)
    wire: list[ModelMessage] = []
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            is_own = index >= under_way and message.model == request.model
            remembered = rounds.recall(message) if is_own else None
            wire.append(remembered or ModelResponse(parts=_answer_parts(message)))
            continue
        parts = _request_parts(message, names, media)
        previous = wire[-1] if wire else None
        if isinstance(previous, WireRequest):
            wire[-1] = WireRequest(parts=[*previous.parts, *parts])
        else:
            wire.append(WireRequest(parts=parts))
    return wire


def wire_parameters(request: ModelRequest, *, takes_schema: bool = False) -> ModelRequestParameters:
    """Return the tools, the system prompt and, if `takes_schema`, the schema of the answer."""
    system = [InstructionPart(content=request.system)] if request.system else []
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=dict(tool.parameters),
            # Schemas are sent as declared: not every server supports strict ones.
            strict=False,
        )
        for tool in request.tools
    ]
    if request.output_schema is None or not takes_schema:
        return ModelRequestParameters(function_tools=tools, instruction_parts=system)
    return ModelRequestParameters(
        function_tools=tools,
        instruction_parts=system,
        output_mode="native",
        output_object=OutputObjectDefinition(dict(request.output_schema), name="answer"),
    )


def wire_settings(request: ModelRequest) -> ModelSettings:
    """Return the settings of `request` in pydantic-ai's form.

    Settings that are None in `request` are omitted.
    """
    level = request.thinking_level
    settings = ModelSettings(thinking=False if level == "off" else level)
    if request.max_output_tokens is not None:
        settings["max_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    return settings


class _Media:
    """The media of a request, and which of them can be sent unchanged."""

    def __init__(self, held: Mapping[str, bytes], sendable: Collection[str]) -> None:
        self._held = held
        self._sendable = sendable

    def content(self, part: ours.MediaPart) -> list[UserContent]:
        """Return the contents to send for `part`: its name as text, if it has one, and its bytes.

        If the model does not accept text or JSON files as media, one text contains the name and the
        content of such a file. For media that are missing or that the model does not accept, one
        text states the reason.
        """
        data = self._held.get(part.handle)
        name = _shown(part.name or "attachment")
        if data is None:
            return [f"({name}, {part.mime_type}, {part.byte_length} bytes: not available)"]
        if part.mime_type in self._sendable:
            named: list[UserContent] = [f"({name}, {part.mime_type})"] if part.name else []
            return [*named, BinaryContent(data, media_type=part.mime_type)]
        if part.mime_type.startswith("text/") or part.mime_type == "application/json":
            return [f"({name}, {part.mime_type})\n{data.decode(errors='replace')}"]
        return [f"({name}, {part.mime_type}, {len(data)} bytes: cannot be shown to this model)"]


def _shown(name: str) -> str:
    """Return the name of media on one line, so that it cannot look like other text."""
    return " ".join(safe(name[:MAX_NAME_CHARACTERS]).split())


def _answer_parts(message: ours.Message) -> list[ModelResponsePart]:
    parts: list[ModelResponsePart] = []
    for part in message.parts:
        if isinstance(part, ours.TextPart):
            parts.append(TextPart(content=part.text))
        elif isinstance(part, ours.ToolCallPart):
            parts.append(ToolCallPart(part.name, dict(part.args), tool_call_id=part.id))
    return parts


def _request_parts(
    message: ours.Message, names: Mapping[str, str], media: _Media
) -> list[ModelRequestPart]:
    if message.role == "system":
        return [SystemPromptPart(message.text)]
    if message.role == "tool":
        return _result_parts(message, names, media)
    return [UserPromptPart(_user_content(message.parts, media))]


def _result_parts(
    message: ours.Message, names: Mapping[str, str], media: _Media
) -> list[ModelRequestPart]:
    """Return the tool results, then their media, because some formats reject media from a tool."""
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
            shown += [each for part in result.media for each in media.content(part)]
            parts.append(UserPromptPart(shown))
    return parts


def _user_content(parts: Sequence[ours.Part], media: _Media) -> str | list[UserContent]:
    content: list[UserContent] = []
    for part in parts:
        if isinstance(part, ours.TextPart):
            content.append(part.text)
        elif isinstance(part, ours.MediaPart):
            content += media.content(part)
    # Plain text is sent as a string: not every server accepts a list of parts.
    texts = [item for item in content if isinstance(item, str)]
    return "\n\n".join(texts) if len(texts) == len(content) else content
