"""Operator's session files of version 3: the words of their records, and those all write alike.

Operator has times in seconds, one message for a batch of tool results, and names in snake case.
Fields without a value are left out, as its own writer does; a root therefore has no ``parent_id``.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.codecs.alike import ROOT, dollars
from perdure.codecs.fields import Fields
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.messages import (
    Message,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
)

VERSION = 3
HEADER = "session"
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
"""What tokens are counted by, as in `Usage`."""

_COSTS = ("input", "output", "cache_read", "cache_write")
WORDS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "aborted": "abort",
    "error": "error",
}
"""Our stop reasons in Operator's words; one to one."""

STOP_REASONS: Mapping[str | None, StopReason] = {word: reason for reason, word in WORDS.items()}


def seconds(at: int) -> float:
    """The time `at` in Operator's unit."""
    return at / 1000


def header(session: str, at: int, cwd: str | None, parent: str | None = None) -> Fields:
    """The first record; `parent` is the file of the session it was forked from."""
    fields: Fields = {
        "type": HEADER,
        "version": VERSION,
        "id": session,
        "timestamp": seconds(at),
        "cwd": cwd or "",
    }
    return fields if parent is None else {**fields, "parent_session": parent}


def placed(record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
    """`record` with its id, time and parent before what is its own."""
    place: Fields = {"id": id, "timestamp": seconds(at)}
    if parent is not None:
        place["parent_id"] = parent
    return {**place, **record}


def message(said: Message, blocks: list[Fields], id: str, at: int) -> Fields:
    """The message `said`, of `blocks`, without what only an answer has."""
    return {"contents": blocks, "id": id, "timestamp": seconds(at), "role": said.role}


def ending(answer: Message) -> Fields:
    """Why a message of the assistant ended."""
    default = "tool_calls" if answer.tool_calls else "stop"
    reason = answer.stop_reason
    return {
        "stop_reason": default if reason is None else WORDS[reason],
        "error": answer.error or "",
    }


def usage(usage: Usage) -> Fields:
    """Usage as Operator's; what a call cost is known as a whole only."""
    counts = {name: getattr(usage, name) for name in TOKENS}
    return {**counts, "cost": {**dict.fromkeys(_COSTS, 0.0), "total": dollars(usage)}}


def blocks(part: Part) -> list[Fields]:
    """What stands for `part` in a message, where all write it alike."""
    match part:
        case TextPart():
            return [text_block(part.text)]
        case ThinkingPart(is_redacted=False):
            # Without a signature, but with the field: a reader may insist on it.
            return [{"type": "thinking", "content": part.text, "signature": ""}]
        case ToolCallPart():
            call = {"id": part.id, "name": part.name, "args": part.args, "metadata": {}}
            return [{"type": "tool_call", **call}]
        case _:
            return []


def text_block(text: str) -> Fields:
    """A text in a message."""
    return {"type": "text", "content": text}


def result_block(call_id: str, text: str, metadata: Fields, *, is_error: bool) -> Fields:
    """A tool's result in a message of a tool."""
    return {
        "type": "tool_result",
        "id": call_id,
        "content": text,
        "is_error": is_error,
        "metadata": metadata,
        "terminate": False,
    }


def details(body: Compaction | BranchSummary) -> Fields:
    """The files that a summary tells of; nothing where there are none."""
    if not body.read_files and not body.modified_files:
        return {}
    files = {"read_files": list(body.read_files), "modified_files": list(body.modified_files)}
    return {"details": files}


def compaction(body: Compaction, kept: str) -> Fields:
    """A compaction; `kept` is the first record it keeps, or its own, which keeps nothing."""
    return {
        "type": "compaction",
        "summary": body.summary,
        "first_kept_entry_id": kept,
        "tokens_before": body.tokens_before or 0,
        **details(body),
        "from_hook": body.reason == "hook",
    }


def branch_summary(body: BranchSummary, origin: str | None) -> Fields:
    """The summary of a branch that was left; it grows from the record `origin`."""
    fields: Fields = {"type": "branch_summary", "from_id": origin or ROOT, "summary": body.summary}
    return {**fields, **details(body), "from_hook": False}


def thinking_change(level: str) -> Fields:
    """The record of a change to the thinking level `level`."""
    return {"type": "thinking_level_change", "thinking_level": level}


def custom(custom_type: str, data: object) -> Fields:
    """A record outside every context."""
    fields: Fields = {"type": "custom", "custom_type": custom_type}
    return fields if data is None else {**fields, "data": data}


def custom_message(
    custom_type: str, content: list[Fields], *, is_displayed: bool, details: object = None
) -> Fields:
    """A message of an extension."""
    fields: Fields = {
        "type": "custom_message",
        "custom_type": custom_type,
        "content": content,
        "display": is_displayed,
    }
    return fields if details is None else {**fields, "details": details}
