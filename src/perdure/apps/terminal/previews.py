"""Formats an entry on one line: the entry's role, and the beginning of the entry's content.

Shape: a preview is plain text without control characters. An unreadable entry has a preview, too,
so this module raises no error for any entry of a log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from perdure.apps.terminal.style import Meaning
from perdure.apps.terminal.text import one_line, safe
from perdure.codecs.pi.words import BASH
from perdure.errors import SessionError
from perdure.session.clock import timestamp
from perdure.session.codec import Body, Unknown, body_of, role_of
from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.kinds import (
    OPAQUE,
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.ledger import (
    Interrupted,
    ModelCalled,
    ModelFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
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
from perdure.session.notes import Answer, Label, Question


class Preview(msgspec.Struct, frozen=True):
    """An entry on one line: `who` is the role or kind, `what` is the beginning of the content."""

    who: str
    what: str
    meaning: Meaning


_WHO: Mapping[str, tuple[str, Meaning]] = {
    "user": ("user", "user"),
    "assistant": ("assistant", "assistant"),
    "tool": ("tool", "tool"),
    "system": ("system", "system"),
    "context": ("context", "system"),
    Compaction.kind: ("compaction", "note"),
    BranchSummary.kind: ("summary", "note"),
    ModelChange.kind: ("model", "faint"),
    ThinkingChange.kind: ("thinking", "faint"),
    Custom.kind: ("custom", "faint"),
    CustomMessage.kind: ("custom", "user"),
    OPAQUE: ("unreadable", "bad"),
}

NOT_SEEN = "(the model does not see this)"
"""Marks a message that the model never receives, such as ``!!command``."""

_TEXT_CELLS = 200
"""Maximum width of a preview in JSON data."""

WHO_WIDTH = max(len(who) for who, _ in _WHO.values())


def who_of(entry: Entry) -> tuple[str, Meaning]:
    """Return the displayed role or kind of `entry`, without decoding its content."""
    return _WHO.get(role_of(entry) or entry.kind, (entry.kind, "faint"))


def entry_name(entry: EntryId, session: StreamId) -> str:
    """Return the number of `entry` if it is in the log of `session`; otherwise, its whole id."""
    stream, _, number = entry.rpartition("/")
    return number if stream == session else entry


def role_meaning(role: str) -> Meaning:
    """Return the colour meaning of a role."""
    return _WHO.get(role, (role, "plain"))[1]


def preview_of(entry: Entry, width: int) -> Preview:
    """Format `entry` on one line; `what` has at most `width` cells."""
    who, meaning = who_of(entry)
    if entry.is_erased and entry.kind != OPAQUE:
        return Preview(safe(who), one_line("(erased)", width), "faint")
    try:
        what = _what(body_of(entry), width)
    except SessionError as error:
        what = error.code.replace("_", " ")
    return Preview(safe(who), one_line(what, width), meaning)


def entry_data(entry: Entry, labels: Mapping[EntryId, str] | None = None) -> dict[str, object]:
    """Return the preview of `entry`, with its label in `labels`, as JSON data."""
    data: dict[str, object] = {"id": entry.id, "kind": entry.kind, "at": timestamp(entry.at)}
    if role := role_of(entry):
        data["role"] = role
    if labels and entry.id in labels:
        data["label"] = labels[entry.id]
    return data | {"text": preview_of(entry, _TEXT_CELLS).what}


def _what(body: Body, width: int) -> str:
    match body:
        case Message():
            return message_line(body, width)
        case Compaction(summary=summary, tokens_before=tokens):
            return summary if tokens is None else f"{tokens:,} tokens → {summary}"
        case BranchSummary(summary=text) | ModelChange(model=text) | ThinkingChange(level=text):
            return text
        case Custom(custom_type=text):
            return text
        case CustomMessage():
            return _custom_line(body)
        case Unknown(kind=kind, v=version) if kind != OPAQUE:
            return f"a kind this perdure does not know (version {version})"
        case _:
            return _side_line(body)


def _custom_line(body: CustomMessage) -> str:
    """Return the command that the user ran, with its output; for other messages, their text."""
    unseen = "" if body.in_context else f" {NOT_SEEN}"
    if (run := shell_run(body.custom_type, body.details)) is None:
        said = " ".join(_part_line(part) for part in body.parts)
        return f"{body.custom_type}{unseen}: {said}"
    command, output = run
    return f"{'!' if body.in_context else '!!'} {command}{unseen} → {output or '(no output)'}"


def shell_run(custom_type: object, details: object) -> tuple[str, str] | None:
    """Return command and output if the custom message records a command of the user.

    Returns None if the message does not record a command of the user.
    """
    match details:
        # pyrefly: ignore[not-callable] # keys of an `object`
        case {"command": str(command), "output": str(output)} if custom_type == BASH:
            return command, output
        case _:
            return None


def _side_line(body: Body) -> str:
    match body:
        case TurnStarted(number=number, agent=agent):
            return f"turn {number} of {agent}"
        case ModelCalled(model=text) | ModelFinished(stop_reason=str(text)) | Label(text=str(text)):
            return text
        case ToolStarted(tool=tool, effect=effect, on_unknown=policy):
            return f"{tool} ({effect}; if its outcome is lost: {policy})"
        case Interrupted(partial=partial):
            return partial.text
        case ToolFinished(tool=tool, outcome=outcome):
            return f"{tool}: {outcome}"
        case TurnFinished(end=text) | Question(text=text) | Answer(choice=text):
            return text
        case _:
            return ""


def message_line(message: Message, width: int) -> str:
    """Return the beginning of `message`, followed by the tools that it calls."""
    said = " ".join(line for part in message.parts if (line := _part_line(part)))
    if message.error:
        said = f"{said} ({message.stop_reason}: {message.error})".lstrip()
    called = _calls_line(message.tool_calls)
    if not said:
        return called or _silence(message)
    room = max(width - min(len(called), width // 2) - 1, 1)
    return f"{one_line(said, room)} {called}" if called else said


def call_line(call: ToolCallPart) -> str:
    """Format a tool call: its name and its first text argument.

    If no argument is a text, all arguments follow as JSON.
    """
    for value in call.args.values():
        if isinstance(value, str) and value.strip():
            return f"{call.name} {value}"
    return f"{call.name} {json.dumps(call.args, ensure_ascii=False)}" if call.args else call.name


def _calls_line(calls: tuple[ToolCallPart, ...]) -> str:
    if not calls:
        return ""
    return "→ " + (call_line(calls[0]) if len(calls) == 1 else ", ".join(c.name for c in calls))


def _silence(message: Message) -> str:
    """Return a placeholder for a message that has no visible text."""
    thoughts = [part for part in message.parts if isinstance(part, ThinkingPart)]
    if thoughts:
        return f"(thinking: {thoughts[0].text or 'redacted'})"
    return f"({message.stop_reason or 'empty'})"


def _part_line(part: Part) -> str:
    """Return the visible text of `part`; thinking and tool calls have no visible text."""
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, MediaPart):
        return f"[{part.name or part.mime_type}, {part.byte_length:,} bytes]"
    if isinstance(part, ToolResultPart):
        name = f"{part.name}: " if part.name else ""
        return f"{name}{'failed: ' if part.is_error else ''}{part.text.strip() or '(no output)'}"
    if isinstance(part, UnknownPart):
        return "(a part this perdure does not know)"
    return ""
