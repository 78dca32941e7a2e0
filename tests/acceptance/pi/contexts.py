"""What a model is sent by pi and by perdure, without the words that each adds.

The texts around a summary, a command and a lost result differ. pi leaves out answers that failed,
perdure keeps the words of those that nothing replaced. Reasoning is left out of both. All the rest
must be equal, piece by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from perdure.client.session import Session
from perdure.context import prompts
from perdure.context.build import Context
from perdure.session.ids import EntryId
from perdure.session.info import one_line
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
"""How the text of an answer that failed begins, in the sessions that the driver makes."""

_NO_RESULT = ("No result provided", prompts.CALL_INTERRUPTED)


def pieces_of_pi(messages: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """What pi sends."""
    return _settled(piece for message in messages for piece in _of_pi(message))


def pieces_of(context: Context) -> list[Piece]:
    """What perdure sends."""
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
    """Put the lost results of a round behind those that are there: either order is valid."""
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


_BESIDE_TREE = ("label", "session_info")


async def require_same(
    session: Session, seen: Mapping[str, Any], what: str, *, has_marks: bool = False
) -> None:
    """Require that `session` is what pi read in its file: context, tree, leaf, labels, title.

    `has_marks`: the file is the session's own, so that lines of ours say which entry they are.
    """
    context, info = await session.context(), await session.info()
    ours, theirs = pieces_of(context), pieces_of_pi(seen["messages"])
    assert ours == theirs, f"{what}: {_difference(ours, theirs)}"
    assert (context.thinking_level or "off") == seen["thinkingLevel"], what
    entries = {entry["id"]: entry for entry in seen["entries"]}
    marks = _marks_in(Path(seen["file"])) if has_marks else {}
    found: dict[str, EntryId] = {}
    for id, entry in entries.items():
        if id in marks and marks[id] is not None:
            found[id] = EntryId(marks[id] or "")
        elif id not in marks and entry["type"] not in _BESIDE_TREE:
            found[id] = await session.find(id)
    assert session.leaf == _of_tree(seen["leaf"], entries, found), what
    parents = {entry.id: entry.parent_id async for entry in session.entries()}
    for id, entry in found.items():
        parent = _of_tree(entries[id]["parent"], entries, found)
        assert parents[entry] == parent, f"{what}: {id}"
    labels = {found[id]: label for id, label in seen["labels"].items() if id in found}
    assert await session.labels() == labels, what
    assert seen["name"] is None or info.title == one_line(seen["name"]), what


def _difference(ours: Sequence[Piece], theirs: Sequence[Piece]) -> object:
    pairs = zip_longest(ours, theirs)
    return next(pair for pair in pairs if pair[0] != pair[1])


def _marks_in(path: Path) -> dict[str, str | None]:
    """Id -> the entry that a line of perdure's is; None for a line beside the tree."""
    marks: dict[str, str | None] = {}
    for line in path.read_text("utf-8").split("\n")[1:-1]:
        record = json.loads(line)
        mark = record.get("perdure")
        if mark is not None:
            marks[record["id"]] = None if mark.get("side") else f"{mark['of']}/{mark['seq']}"
    return marks


def _of_tree(
    id: str | None, entries: Mapping[str, Mapping[str, Any]], found: Mapping[str, EntryId]
) -> EntryId | None:
    """Return the nearest entry of the conversation, from the entry `id` towards its root."""
    while id is not None and id in entries and id not in found:
        id = entries[id]["parent"]
    return None if id is None else found.get(id)
