"""Convert entries to records of an Operator file of version 3.

Shape of a record: ``type`` and the fields of this type, in Operator's order; `place_record` inserts
``id``, ``timestamp`` and ``parent_id`` before the fields. Operator uses times in seconds, one
message for all tool results of a batch, and names in snake case. Like Operator's own writer, this
module omits fields without a value, so a root has no ``parent_id``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perdure.codecs.fields import Fields
from perdure.codecs.ids import message_id
from perdure.codecs.operator.words import HEADER, META, NAME, TOKENS, VERSION, WORDS
from perdure.codecs.protocol import WriteContext, base64_of, carried_fields, whole_args, whole_text
from perdure.codecs.shared_keys import OURS, ROOT, dollars, meta_of, provider_and_model
from perdure.session.codec import Body
from perdure.session.entries import Entry
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    MESSAGE,
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged

CONTEXT = "context"
"""A role that Operator does not have; models receive messages with this role as user messages."""

_COSTS = ("input", "output", "cache_read", "cache_write")


def seconds(at: int) -> float:
    """Convert the time `at` from milliseconds to seconds, the unit in Operator's files."""
    return at / 1000


def header(session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
    """Return the first record; `parent` is the file of the session from which it was forked."""
    fields: Fields = {
        "type": HEADER,
        "version": VERSION,
        "id": session,
        "timestamp": seconds(at),
        "cwd": cwd or "",
    }
    return fields if parent is None else {**fields, "parent_session": parent}


def place_record(record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
    """Return `record` with its id, time and parent inserted before its other fields."""
    place: Fields = {"id": id, "timestamp": seconds(at)}
    if parent is not None:
        place["parent_id"] = parent
    return {**place, **record}


def records_of(entry: Entry, body: Body, writing: WriteContext) -> list[Fields]:
    """Return the records for `entry`, at least one; each record is the parent of the next one.

    Shape: when Operator reads the records, it gets the same messages as the entry contains.
    """
    made = [] if entry.id in writing.undone else _records(entry, body, writing)
    return made or [custom(OURS + entry.kind, carried_fields(entry, is_escaped=True))]


def _records(entry: Entry, body: Body, writing: WriteContext) -> list[Fields]:
    match body:
        case Message():
            return [_message_record(body, entry, 0, writing)]
        case Compaction():
            return _compaction(entry, body, writing)
        case BranchSummary() if body.summary.strip():  # Operator would send an empty one to a model
            return [_branch_summary(body, writing)]
        case CustomMessage(in_context=True):
            displayed, details = body.is_displayed, body.details
            shown = _shown_fields(body.custom_type, body.parts, writing, is_displayed=displayed)
            return [shown if details is None else {**shown, "details": details}]
        case _:
            record = _record(entry, body, writing)
            return [] if record is None else [record]


def _record(entry: Entry, body: Body, writing: WriteContext) -> Fields | None:
    """Return the record for an entry without a message; None if Operator has no such record."""
    match body:
        case ModelChange():
            provider, model = provider_and_model(body.model)
            return {"type": "model_change", "model_id": model, "provider_id": provider}
        case ThinkingChange():
            return {"type": "thinking_level_change", "thinking_level": body.level}
        case Custom():
            return custom(body.custom_type, body.data)
        case LeafMoved():
            return leaf(None if body.target is None else writing.last(body.target))
        case Label() if (target := writing.target(entry)) is not None:
            return label(target, body.text)
        case SessionInfoChanged(title=str(name)):
            return title(name)
        case _:
            return None


# -- messages


def _message_record(message: Message, entry: Entry, ordinal: int, writing: WriteContext) -> Fields:
    """Return the record of a message; `ordinal` is the number of the message in its entry."""
    if message.role == CONTEXT:
        return _shown_fields(OURS + CONTEXT, message.parts, writing, is_displayed=False)
    make = _result_block if message.role == "tool" else _block
    fields: Fields = {
        "contents": [block for part in message.parts for block in make(part, writing)],
        "id": message_id(entry.id, ordinal),
        "timestamp": seconds(entry.at),
        "role": message.role,
    }
    if message.role == "assistant":
        if message.usage is not None:
            fields["usage"] = _usage(message.usage)
        default = "tool_calls" if message.tool_calls else "stop"
        reason = message.stop_reason
        fields["stop_reason"] = default if reason is None else WORDS[reason]
        fields["error"] = message.error or ""
    known = meta_of(entry.body) if entry.kind == MESSAGE else {}
    meta = {name: known[name] for name in META if name in known}
    record: Fields = {"type": "message", "message": fields}
    return {**record, "meta": meta} if meta else record


def _usage(usage: Usage) -> Fields:
    """Return `usage` as Operator writes it; all costs are 0, except the total if it is known."""
    counts = {name: getattr(usage, name) for name in TOKENS}
    return {**counts, "cost": {**dict.fromkeys(_COSTS, 0.0), "total": dollars(usage)}}


def _block(part: Part, writing: WriteContext) -> list[Fields]:
    match part:
        case ToolResultPart():
            return _result_block(part, writing)
        case ThinkingPart(is_redacted=False):
            # Without a signature, but with the field: a reader may require it.
            return [{"type": "thinking", "content": part.text, "signature": ""}]
        case ToolCallPart():
            args = whole_args(part, writing)
            call = {"id": part.id, "name": part.name, "args": args, "metadata": {}}
            return [{"type": "tool_call", **call}]
        case _:
            return _spoken(part, writing)


def _result_block(part: Part, writing: WriteContext) -> list[Fields]:
    """Return a part as a block of a tool message; a part that is not a result becomes text."""
    if not isinstance(part, ToolResultPart):
        return _spoken(part, writing)
    result: Fields = {
        "type": "tool_result",
        "id": part.call_id,
        "content": whole_text(part, writing),
        "is_error": part.is_error,
        "metadata": {} if part.name is None else {NAME: part.name},
        "terminate": False,
    }
    return [result]


def _spoken(part: Part, writing: WriteContext) -> list[Fields]:
    match part:
        case TextPart():
            return [_text(part.text)]
        case MediaPart():
            return [_medium(part, writing)]
        case _:
            return []


def _text(text: str) -> Fields:
    return {"type": "text", "content": text}


def _medium(part: MediaPart, writing: WriteContext) -> Fields:
    data = base64_of(part, writing) if is_medium(part) else None
    if data is None:
        return _text(f"[{part.mime_type}, not kept]")
    if part.mime_type.startswith("audio/"):
        return {"type": "audio", "audio": data}
    return {"type": "image", "images": [data]}


def is_medium(part: MediaPart) -> bool:
    """Whether Operator has a kind of block for the media `part`: true for images and audio."""
    return part.mime_type.startswith(("image/", "audio/"))


def is_written(part: Part, role: str) -> bool:
    """Whether Operator has a kind of block for `part` in a message of the role `role`."""
    if isinstance(part, TextPart | MediaPart):
        return True
    if isinstance(part, ToolResultPart):
        return role != CONTEXT
    is_said = isinstance(part, ToolCallPart | ThinkingPart) and role not in (CONTEXT, "tool")
    return is_said and not (isinstance(part, ThinkingPart) and part.is_redacted)


# -- other kinds


def custom(custom_type: str, data: object) -> Fields:
    """Return the record of the custom type `custom_type`, with `data` unless it is None."""
    fields: Fields = {"type": "custom", "custom_type": custom_type}
    return fields if data is None else {**fields, "data": data}


def title(title: str | None) -> Fields:
    """Return the record that names the session; without `title` it removes the name."""
    return {"type": "session_info", "name": title} if title else {"type": "session_info"}


def label(target: str, text: str | None) -> Fields:
    """Return the record that labels the record `target`; without `text` it removes the label."""
    named = {"label": text} if text else {}
    return {"type": "label", **named, "target_id": target}


def leaf(target: str | None) -> Fields:
    """Return the record that moves the leaf to the record `target`."""
    return {"type": "leaf"} if target is None else {"type": "leaf", "target_id": target}


def _shown_fields(
    custom_type: str, parts: Iterable[Part], writing: WriteContext, *, is_displayed: bool
) -> Fields:
    return {
        "type": "custom_message",
        "custom_type": custom_type,
        "content": [block for part in parts for block in _spoken(part, writing)],
        "display": is_displayed,
    }


def _details(body: Compaction | BranchSummary) -> Fields:
    """Return the files that a summary lists; empty if there are none."""
    if not body.read_files and not body.modified_files:
        return {}
    files = {"read_files": list(body.read_files), "modified_files": list(body.modified_files)}
    return {"details": files}


def _compaction(entry: Entry, body: Compaction, writing: WriteContext) -> list[Fields]:
    """Return the record of a compaction, preceded by the messages that the compaction retained."""
    retained = () if entry.id in writing.kept_over else body.retained or ()
    records = [_message_record(each, entry, n, writing) for n, each in enumerate(retained)]
    kept = None
    if body.retained is None and body.first_kept is not None:
        kept = writing.first(body.first_kept)
    fields: Fields = {
        "type": "compaction",
        "summary": body.summary,
        # The first of `records`. Its own id means "keeps nothing": it is never before itself.
        "first_kept_entry_id": kept or writing.own,
        "tokens_before": body.tokens_before or 0,
        **_details(body),
        "from_hook": body.reason == "hook",
    }
    return [*records, fields]


def _branch_summary(body: BranchSummary, writing: WriteContext) -> Fields:
    origin = None if body.from_id is None else writing.last(body.from_id)
    fields: Fields = {"type": "branch_summary", "from_id": origin or ROOT, "summary": body.summary}
    return {**fields, **_details(body), "from_hook": False}
