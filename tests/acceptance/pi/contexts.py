"""The context that a model receives from pi and from perdure, without each program's own words.

The texts around a summary, a command and a lost result differ. pi omits failed answers. perdure
keeps the words of a failed answer if no other answer replaced it. The comparison omits the
reasoning of both contexts. All other parts of the two contexts must be equal, piece by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from perdure.context import prompts
from perdure.context.build import Context
from perdure.session.messages import MediaPart, Part, TextPart, ToolCallPart, ToolResultPart

Piece = tuple[object, ...]

_SUMMARY = re.compile(r"<summary>\n(.*?)\n?</summary>\Z", re.DOTALL)
_LEAD_INS = (
    "The conversation history before this point was compacted",
    "The following is a summary of a branch that this conversation came back from",
    prompts.COMPACTION_LEAD_IN,
    prompts.BRANCH_LEAD_IN,
)
_COMMAND = re.compile(r"(?:Ran|I ran this command:) `(.*?)`\n+(?:```\n(.*?)\n```|)", re.DOTALL)
FAILED = "(failed)"
"""The beginning of the text of a failed answer, in the sessions that the driver makes."""

_NO_RESULT = ("No result provided", prompts.CALL_INTERRUPTED)


def pieces_of_pi(messages: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """The pieces of the context that pi sends."""
    return _settled(piece for message in messages for piece in _of_pi(message))


def pieces_of(context: Context) -> list[Piece]:
    """The pieces of the context that perdure sends."""
    return _settled(
        piece
        for each in context.messages
        for part in each.message.parts
        for piece in _of_part(each.message.role, part)
    )


def _of_pi(message: Mapping[str, Any]) -> Iterator[Piece]:
    content: Any = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "toolResult":
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        yield _result(message["toolCallId"], text)
        return
    for part in cast("list[dict[str, Any]]", parts):
        if part["type"] == "text":
            yield from _text(message["role"], part["text"])
        elif part["type"] == "toolCall":
            yield _call(part["id"], part["name"], part["arguments"])
        else:
            yield (message["role"], part["type"])


def _of_part(role: str, part: Part) -> Iterator[Piece]:
    match part:
        case TextPart() if part.text == prompts.CONVERSATION_BEGINS or part.text.startswith(FAILED):
            pass
        case TextPart():
            yield from _text(role, part.text)
        case ToolCallPart():
            yield _call(part.id, part.name, part.args)
        case ToolResultPart():
            yield _result(part.call_id, part.text)
        case MediaPart():
            yield (role, "image")
        case _:
            pass


def _text(role: str, text: str) -> Iterator[Piece]:
    summary = _SUMMARY.search(text)
    if role == "user" and text.startswith(_LEAD_INS) and summary:
        yield ("summary", summary.group(1).strip())
        return
    command = _COMMAND.match(text)
    if role == "user" and command:
        yield ("ran", command.group(1), command.group(2) or "")
        return
    yield (role, text.strip())


def _call(id: str, name: str, arguments: object) -> Piece:
    return ("call", id, name, json.dumps(arguments, sort_keys=True))


def _result(call: str, text: str) -> Piece:
    return ("result", call, None if text in _NO_RESULT else text)


def _settled(pieces: Iterator[Piece]) -> list[Piece]:
    """Move the lost results of a round behind its other results, because both orders are valid."""
    settled: list[Piece] = []
    results: list[Piece] = []
    for piece in pieces:
        if piece[0] == "result":
            results.append(piece)
            continue
        settled += sorted(results, key=lambda each: each[2] is None)
        results = []
        settled.append(piece)
    return settled + sorted(results, key=lambda each: each[2] is None)


def difference(ours: Sequence[Piece], theirs: Sequence[Piece]) -> object:
    """Return the first pair of pieces that differ."""
    return next(pair for pair in zip_longest(ours, theirs) if pair[0] != pair[1])
