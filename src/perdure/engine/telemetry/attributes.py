"""Span attributes of models, tools and messages; secrets in texts are masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.engine.telemetry import names
from perdure.engine.turns import inputs
from perdure.engine.turns.inputs import Input
from perdure.engine.turns.state import OpenCall, provider_of
from perdure.events.scope import Facts
from perdure.models.protocol import ToolDeclaration
from perdure.secrets.mask import mask_secrets, masked_value
from perdure.session.ledger import ToolStarted
from perdure.session.messages import (
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

Value = str | int | bool | tuple[str, ...]
Attributes = dict[str, Value]

MAX_CONTENT = 32 * 1024
"""Maximum characters of one attribute with content."""

_ROOM_FOR_NOTE = 128
_ESCAPED = 6
"""Maximum number of characters that JSON needs for one character."""


def scope_attributes(facts: Facts) -> Attributes:
    """Return the attributes of every span: session, agent, flow and similar facts."""
    found: Attributes = {names.fact(name): value for name, value in facts.items()}
    if "session" in facts:
        found[names.CONVERSATION] = str(facts["session"])
    return found


def of_model(model: str) -> Attributes:
    """Return the attributes that spans and metrics of a model call share."""
    provider = provider_of(model)
    return {
        names.OPERATION: names.CHAT,
        names.PROVIDER: names.PROVIDERS.get(provider, provider),
        names.REQUEST_MODEL: model_name(model),
    }


def of_call(call: OpenCall, max_output_tokens: int | None) -> Attributes:
    """Return the attributes of a model call that are known before the call."""
    found = of_model(call.model)
    found |= {names.PURPOSE: call.purpose, names.ATTEMPT: call.attempt}
    if max_output_tokens is not None:
        found[names.REQUEST_MAX_TOKENS] = max_output_tokens
    return found


def model_name(model: str) -> str:
    """Return a model's name without its provider."""
    return model.partition(":")[2] or model


def of_tool(started: ToolStarted) -> Attributes:
    """Return the attributes of a tool call that are known before it runs."""
    return {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: started.tool,
        names.TOOL_CALL: started.id,
        names.TOOL_TYPE: "function",
        names.EFFECT: started.effect,
        names.ATTEMPT: started.attempt,
    }


def of_usage(usage: Usage | None) -> Attributes:
    """Return the attributes for the usage of a call or a turn.

    Input tokens include cached tokens.
    """
    if usage is None:
        return {}
    found: Attributes = {
        names.INPUT_TOKENS: usage.total_tokens - usage.output_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
    }
    if usage.cache_read_tokens:
        found[names.CACHE_READ_TOKENS] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        found[names.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
    if usage.cost_microcents is not None:
        found[names.COST] = usage.cost_microcents
    return found


def usage_of(happened: Input | None) -> Usage | None:
    """Return the usage of the ended call, if known."""
    if isinstance(happened, inputs.Answered):
        return happened.message.usage
    if isinstance(happened, inputs.Summarised | inputs.CallFailed | inputs.Aborted):
        return happened.usage
    return None


def error_of(happened: Input | None) -> str | None:
    """Return the error code of the call; None if there was no error."""
    if isinstance(happened, inputs.CallFailed):
        return happened.error.code
    if isinstance(happened, inputs.ToolReturned) and happened.outcome != "ok":
        return happened.error_code or happened.outcome
    return "aborted" if isinstance(happened, inputs.Aborted) else None


def shown_message(message: Message) -> str:
    """Return `message` in the form of OpenTelemetry, with secrets masked and long texts cut."""
    return shown_messages((message,))


def shown_messages(messages: Sequence[Message]) -> str:
    """Return `messages` in the form of the OpenTelemetry conventions, with secrets masked.

    Shape: the result is a JSON list of at most `MAX_CONTENT` characters. The list contains the
    newest messages, after one message that states how many are omitted. If a single message is too
    long, its texts are cut.
    """
    kept: list[str] = []
    room = MAX_CONTENT - _ROOM_FOR_NOTE
    for message in reversed(messages):
        text = _encode(_message_fields(message))
        if len(text) + 1 > room:
            break
        room -= len(text) + 1
        kept.insert(0, text)
    if not kept and messages:
        kept.append(_clip(_message_fields(messages[-1]), room))
    if missing := len(messages) - len(kept):
        note = {"type": "text", "content": f"[{missing} earlier messages are left out]"}
        kept.insert(0, _encode({"role": "system", "parts": [note]}))
    return f"[{','.join(kept)}]"


def shown_instructions(text: str) -> str:
    """Return the system prompt in the form of the OpenTelemetry conventions."""
    clipped = mask_secrets(text)[: (MAX_CONTENT - _ROOM_FOR_NOTE) // _ESCAPED]
    return _encode([{"type": "text", "content": clipped}])


def shown_tools(tools: Sequence[ToolDeclaration]) -> str:
    """Return as many of the request's tool declarations as fit, in the form of OpenTelemetry."""
    shown: list[str] = []
    room = MAX_CONTENT
    for tool in tools:
        about = {
            "type": "function",
            "name": tool.name,
            "description": mask_secrets(tool.description),
        }
        text = _encode({**about, "parameters": tool.parameters})
        room -= len(text) + 1
        if room < 2:
            break
        shown.append(text)
    return f"[{','.join(shown)}]"


def _message_fields(message: Message) -> dict[str, object]:
    parts = [each for part in message.parts if (each := _shown_part(part)) is not None]
    shown: dict[str, object] = {"role": message.role, "parts": parts}
    if message.stop_reason is not None:
        reason = message.stop_reason
        shown["finish_reason"] = names.FINISH_REASONS_SHOWN.get(reason, reason)
    return shown


def _clip(shown: dict[str, object], room: int) -> str:
    """Return `shown` with its texts cut so that it fits into `room` characters."""
    most = room
    while len(text := _encode(_cut(shown, most))) > room and most:
        most = max(most // 2, most - (len(text) - room))
    return text


def _cut(value: object, most: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}[cut]"
    if isinstance(value, list):
        return [_cut(each, most) for each in cast("list[object]", value)[: most + 1]]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _cut(each, most) for key, each in list(fields.items())[: most + 4]}
    return value


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def shown_args(args: Mapping[str, object]) -> str:
    """Return the arguments of a tool call in the form of the OpenTelemetry conventions."""
    shown = cast("dict[str, object]", masked_value(args))
    text = _encode(shown)
    return text if len(text) <= MAX_CONTENT else _clip(shown, MAX_CONTENT)


def _shown_part(part: object) -> dict[str, object] | None:
    match part:
        case TextPart():
            return {"type": "text", "content": mask_secrets(part.text)}
        case ThinkingPart():
            return {"type": "reasoning", "content": mask_secrets(part.text)}
        case ToolCallPart():
            arguments = masked_value(part.args)
            return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
        case ToolResultPart():
            return {
                "type": "tool_call_response",
                "id": part.call_id,
                "result": mask_secrets(part.text),
            }
        case _:
            return None  # media are bytes, and unknown parts may be anything
