"""Write messages as text, for a model or a person outside of the conversation."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.session.codec import encode
from perdure.session.messages import MediaPart, Message, TextPart, ToolCallPart, ToolResultPart

RESULT_CHARACTERS = 2_000
"""Maximum characters of a tool result. Text of people and models is never cut."""

_SPEAKERS = {"user": "User", "assistant": "Assistant", "tool": "Tool"}


def transcript(messages: Iterable[Message]) -> str:
    """Return `messages` as paragraphs that start with the speaker; reasoning is omitted."""
    return "\n\n".join(line for message in messages for line in _lines(message))


def _lines(message: Message) -> list[str]:
    speaker = _SPEAKERS.get(message.role, message.role.capitalize())
    lines: list[str] = []
    for part in message.parts:
        match part:
            case TextPart() if part.text.strip():
                lines.append(f"[{speaker}]: {part.text}")
            case MediaPart():
                lines.append(f"[{speaker}]: {media_note(part)}")
            case ToolCallPart():
                lines.append(f"[{speaker} calls]: {call_text(part)}")
            case ToolResultPart():
                lines.append(f"[{_result_label(part)}]: {_shorten(part.text)}")
            case _:
                pass  # reasoning, and parts of unknown types
    return lines


def call_text(call: ToolCallPart) -> str:
    """Return a tool call as ``name(argument=JSON, …)``."""
    arguments = ", ".join(f"{key}={encode(value).decode()}" for key, value in call.args.items())
    return f"{call.name}({arguments})"


def media_note(media: MediaPart) -> str:
    """Return the text that replaces a media part in plain text."""
    return f"[attached: {media.name or 'unnamed'}, {media.mime_type}]"


def _result_label(result: ToolResultPart) -> str:
    kind = "Tool error" if result.is_error else "Tool result"
    return f"{kind} of {result.name}" if result.name else kind


def _shorten(text: str) -> str:
    left_out = len(text) - RESULT_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:RESULT_CHARACTERS]}\n[{left_out} more characters were left out]"
