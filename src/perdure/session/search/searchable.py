"""The searchable part of an entry: its text, its role, and the tools that it names.

These parts are searchable: messages (text, visible reasoning, names and arguments of tool calls,
results, errors), summaries of compactions and branches, messages of extensions, titles and labels.
These parts are not searchable: the turn ledger (it repeats the messages), system prompts stored
with a session's start, media, the state of extensions, redacted reasoning, and unreadable bodies.

A change of this module changes the content of indexes, so raise ``words.VERSION``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from perdure.session.codec import Body, readable
from perdure.session.entries import Entry
from perdure.session.info import StreamHeader
from perdure.session.kinds import MESSAGE, BranchSummary, Compaction, CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from perdure.session.notes import Label, SessionInfoChanged
from perdure.session.search.values import SearchRole

KINDS: tuple[str, ...] = (
    MESSAGE,
    *(body.kind for body in (Compaction, BranchSummary, CustomMessage)),
    *(body.kind for body in (SessionInfoChanged, Label)),
)
"""The searchable kinds of entries."""

_KINDS = frozenset(KINDS)
_OF_TOOLS = (ToolCallPart, ToolResultPart)


class Searchable(msgspec.Struct, frozen=True):
    """The searchable part of an entry.

    `tools` are the names of the tools of which the entry contains a call or a result. `author` is
    the speaker of a message, or None. `said_at` is the time when the message was said, or None.
    """

    role: SearchRole
    text: str
    tools: tuple[str, ...] = ()
    author: str | None = None
    said_at: int | None = None


def searchable_of(entry: Entry) -> Searchable | None:
    """Return the searchable part of `entry`; None if there is none."""
    if entry.kind not in _KINDS:
        return None
    found = _of_body(readable(entry))
    return found if found is not None and found.text else None


def searchable_title(header: StreamHeader) -> Searchable | None:
    """Return the title in a stream's header (no entry contains it); None if there is no title."""
    if header.kind != "session" or not header.title:
        return None
    return Searchable("title", header.title)


def _of_body(body: Body) -> Searchable | None:
    match body:
        case Message():
            text, tools = _text_of_message(body), _tools_of(body.parts)
            return Searchable(body.role, text, tools, body.author, body.said_at)
        case CustomMessage():
            return Searchable("custom", _text_of(body.parts), _tools_of(body.parts))
        case Compaction() | BranchSummary():
            return Searchable("summary", body.summary)
        case SessionInfoChanged(title=str(title)):
            return Searchable("title", title)
        case Label(text=str(text)):
            return Searchable("label", text)
        case _:
            return None


def _text_of_message(message: Message) -> str:
    text = _text_of(message.parts)
    return "\n".join(filter(None, (text, message.error))) if message.error else text


def _text_of(parts: Iterable[Part]) -> str:
    return "\n".join([text for part in parts for text in _texts_of(part) if text])


def _texts_of(part: Part) -> Iterator[str]:
    match part:
        case TextPart():
            yield part.text
        case ThinkingPart():
            if not part.is_redacted:
                yield part.text
        case ToolCallPart():
            yield part.name
            yield from _plain_texts(part.args)
        case ToolResultPart():
            yield part.text
        case MediaPart():
            yield part.name or ""
        case UnknownPart():
            return


def _plain_texts(value: object) -> Iterator[str]:
    """Yield the keys and values in plain data, in order, at any depth."""
    waiting: list[object] = [value]
    while waiting:
        below = waiting.pop()
        if isinstance(below, dict):
            fields = cast("dict[str, object]", below)
            waiting.extend(each for key in reversed(fields) for each in (fields[key], key))
        elif isinstance(below, list):
            waiting.extend(reversed(cast("list[object]", below)))
        elif isinstance(below, str):
            yield below
        elif below is not None and not isinstance(below, bool):
            yield str(below)


def _tools_of(parts: Iterable[Part]) -> tuple[str, ...]:
    named = [part.name for part in parts if isinstance(part, _OF_TOOLS)]
    return tuple(dict.fromkeys(filter(None, named))) if named else ()
