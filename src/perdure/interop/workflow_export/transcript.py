"""Convert a branch to the messages of an agent session, numbered from 0, the root first.

Text without a speaker (summaries, messages of extensions) is a ``system`` message. The messages
have no provider signatures and no inline media, because the log contains none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.session.clock import timestamp
from perdure.session.codec import encode, readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

MAX_DEPTH = 30
"""Maximum nesting of tool arguments written as data; deeper values are written as JSON text."""

_ROLES = {"user": "user", "assistant": "assistant", "tool": "tool"}


class JsonTranscript(msgspec.Struct, frozen=True):
    """The messages of a branch as JSON objects. `unknown` counts the unreadable parts."""

    messages: tuple[Mapping[str, object], ...]
    unknown: int


def transcript_of(
    branch: Sequence[Entry], session: StreamId, undone: frozenset[EntryId] = frozenset()
) -> JsonTranscript:
    """Convert `branch` (root to leaf) to messages; compactions in `undone` do not hide messages.

    Shape: the messages have the fields of the agent session specification. A compaction is a
    ``system`` message that states the number of the last message it hides.
    """
    numbers: dict[EntryId, int] = {}
    messages: list[Mapping[str, object]] = []
    unknown = 0
    for entry in branch:
        body = readable(entry)
        said = _role_and_parts(body)
        numbers[entry.id] = len(messages)  # the number of this message, or of the next
        if said is None:
            continue
        role, parts = said
        content = [written for part in parts if (written := _part(part)) is not None]
        unknown += len(parts) - len(content)
        message: dict[str, object] = {
            "id": entry.id,
            "sessionId": session,
            "sequenceNumber": len(messages),
            "role": role,
            "content": content,
            "timestamp": timestamp(entry.at),
        }
        if isinstance(body, Message) and body.model:
            message["modelId"] = body.model
        if isinstance(body, Compaction) and entry.id not in undone:
            first = len(messages) if body.first_kept is None else numbers.get(body.first_kept)
            hidden = (len(messages) if first is None else first) - 1
            if hidden >= 0:
                message["compaction"] = {"droppedThroughSequence": hidden}
        messages.append(message)
    return JsonTranscript(tuple(messages), unknown)


def _role_and_parts(body: object) -> tuple[str, tuple[Part, ...]] | None:
    match body:
        case Message():
            return _ROLES.get(body.role, "system"), body.parts
        case Compaction() | BranchSummary():
            return "system", (TextPart(body.summary),)
        case CustomMessage():
            return "system", body.parts
        case _:
            return None


def _part(part: Part) -> dict[str, object] | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ThinkingPart():
            written: dict[str, object] = {"type": "reasoning", "text": part.text}
            return written | ({"redacted": True} if part.is_redacted else {})
        case MediaPart():
            return _media(part)
        case ToolCallPart():
            args = part.args if _depth(part.args) <= MAX_DEPTH else encode(part.args).decode()
            return {"type": "tool_call", "id": part.id, "name": part.name, "args": args}
        case ToolResultPart():
            return _result(part)
        case _:
            return None


def _media(part: MediaPart) -> dict[str, object]:
    written: dict[str, object] = {
        "type": "media",
        "mimeType": part.mime_type,
        "source": {"kind": "handle", "handle": part.handle},
        "byteLength": part.byte_length,
    }
    return written | ({"name": part.name} if part.name else {})


def _result(part: ToolResultPart) -> dict[str, object]:
    written: dict[str, object] = {
        "type": "tool_result",
        "toolCallId": part.call_id,
        "result": part.text,
    }
    if part.is_error:
        written["isError"] = True
    if part.media:
        written["media"] = [_media(each) for each in part.media]
    return written


def _depth(value: object) -> int:
    """Return the nesting depth of lists and objects."""
    deepest = 0
    waiting: list[tuple[object, int]] = [(value, 1)]
    while waiting:
        below, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(below, dict):
            fields = cast("dict[str, object]", below)
            waiting.extend((item, depth + 1) for item in fields.values())
        elif isinstance(below, list):
            waiting.extend((item, depth + 1) for item in cast("list[object]", below))
    return deepest
