"""Entries as records of an Operator file of version 3.

Shape of a record: its ``type`` and the fields of its own, in Operator's order; `placed` puts
``id``, ``timestamp`` and ``parent_id`` before them. Operator has times in seconds, one message for
a batch of tool results, and names in snake case. Fields without a value are left out, as its own
writer does; a root therefore has no ``parent_id``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from perdure.codecs.alike import NO_MODEL, OURS, ROOT, dollars, meta_of
from perdure.codecs.fields import Fields
from perdure.codecs.form import Writing, base64_of, carried, whole_args, whole_text
from perdure.codecs.ids import message_id
from perdure.codecs.operator.words import HEADER, META, NAME, TOKENS, VERSION, WORDS
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
"""A role that Operator has not; it is the user's for a model."""

_COSTS = ("input", "output", "cache_read", "cache_write")


def seconds(at: int) -> float:
    """Return the time `at` in Operator's unit."""
    return at / 1000


def header(session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
    """Return the first record; `parent` is the file of the session it was forked from."""
    fields: Fields = {
        "type": HEADER,
        "version": VERSION,
        "id": session,
        "timestamp": seconds(at),
        "cwd": cwd or "",
    }
    return fields if parent is None else {**fields, "parent_session": parent}


def placed(record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
    """Return `record` with its id, time and parent before what is its own."""
    place: Fields = {"id": id, "timestamp": seconds(at)}
    if parent is not None:
        place["parent_id"] = parent
    return {**place, **record}


def records_of(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    """Return the records for `entry`, each below the one before; one at least.

    Shape: by Operator's own rules they give the same messages as the entry.
    """
    make = None if entry.id in writing.undone else _RECORDS.get(entry.kind)
    made = [] if make is None else make(entry, body, writing)
    return made or [custom(OURS + entry.kind, carried(entry, is_escaped=True))]


# -- messages


def _message(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    return [_message_record(body, entry, 0, writing)] if isinstance(body, Message) else []


def _message_record(message: Message, entry: Entry, ordinal: int, writing: Writing) -> Fields:
    """The record of a message; `ordinal` tells those made of one entry apart."""
    if message.role == CONTEXT:
        return _shown(OURS + CONTEXT, message.parts, writing, is_displayed=False)
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
    """Usage as Operator's; the cost of a call is known as a whole only."""
    counts = {name: getattr(usage, name) for name in TOKENS}
    return {**counts, "cost": {**dict.fromkeys(_COSTS, 0.0), "total": dollars(usage)}}


def _block(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case ToolResultPart():
            return _result_block(part, writing)
        case ThinkingPart(is_redacted=False):
            # Without a signature, but with the field: a reader may insist on it.
            return [{"type": "thinking", "content": part.text, "signature": ""}]
        case ToolCallPart():
            args = whole_args(part, writing)
            call = {"id": part.id, "name": part.name, "args": args, "metadata": {}}
            return [{"type": "tool_call", **call}]
        case _:
            return _spoken(part, writing)


def _result_block(part: Part, writing: Writing) -> list[Fields]:
    """A tool message holds results only; whatever else is in one of ours is shown as text."""
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


def _spoken(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case TextPart():
            return [_text(part.text)]
        case MediaPart():
            return [_medium(part, writing)]
        case _:
            return []


def _text(text: str) -> Fields:
    return {"type": "text", "content": text}


def _medium(part: MediaPart, writing: Writing) -> Fields:
    data = base64_of(part, writing) if is_medium(part) else None
    if data is None:
        return _text(f"[{part.mime_type}, not kept]")
    if part.mime_type.startswith("audio/"):
        return {"type": "audio", "audio": data}
    return {"type": "image", "images": [data]}


def is_medium(part: MediaPart) -> bool:
    """Whether Operator has a block for `part`."""
    return part.mime_type.startswith(("image/", "audio/"))


def is_written(part: Part, role: str) -> bool:
    """Whether there is anything for `part` in a record of a message of `role`."""
    if isinstance(part, TextPart | MediaPart):
        return True
    if isinstance(part, ToolResultPart):
        return role != CONTEXT
    is_said = isinstance(part, ToolCallPart | ThinkingPart) and role not in (CONTEXT, "tool")
    return is_said and not (isinstance(part, ThinkingPart) and part.is_redacted)


# -- the other kinds


def custom(custom_type: str, data: object) -> Fields:
    """Return a record outside every context."""
    fields: Fields = {"type": "custom", "custom_type": custom_type}
    return fields if data is None else {**fields, "data": data}


def title(title: str | None) -> Fields:
    """Return the record that names the session; without `title` it has none any more."""
    return {"type": "session_info", "name": title} if title else {"type": "session_info"}


def label(target: str, text: str | None) -> Fields:
    """Return the record that labels the record `target`; without `text` it has none any more."""
    named = {"label": text} if text else {}
    return {"type": "label", **named, "target_id": target}


def leaf(target: str | None) -> Fields:
    """Return the record that moves the leaf to the record `target`."""
    return {"type": "leaf"} if target is None else {"type": "leaf", "target_id": target}


def _shown(
    custom_type: str,
    parts: Iterable[Part],
    writing: Writing,
    *,
    is_displayed: bool,
    details: object = None,
) -> Fields:
    fields: Fields = {
        "type": "custom_message",
        "custom_type": custom_type,
        "content": [block for part in parts for block in _spoken(part, writing)],
        "display": is_displayed,
    }
    return fields if details is None else {**fields, "details": details}


def _details(body: Compaction | BranchSummary) -> Fields:
    """The files that a summary tells of; nothing where there are none."""
    if not body.read_files and not body.modified_files:
        return {}
    files = {"read_files": list(body.read_files), "modified_files": list(body.modified_files)}
    return {"details": files}


def _compaction(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    """A compaction; before it, what it kept verbatim, as messages for it to begin at."""
    if not isinstance(body, Compaction):
        return []
    retained = () if entry.id in writing.kept_over else body.retained or ()
    records = [_message_record(each, entry, n, writing) for n, each in enumerate(retained)]
    kept = None
    if body.retained is None and body.first_kept is not None:
        kept = writing.first(body.first_kept)
    fields: Fields = {
        "type": "compaction",
        "summary": body.summary,
        # The first of `records`; its own id says "keeps nothing": it is never before itself.
        "first_kept_entry_id": kept or writing.own,
        "tokens_before": body.tokens_before or 0,
        **_details(body),
        "from_hook": body.reason == "hook",
    }
    return [*records, fields]


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    if not isinstance(body, BranchSummary) or not body.summary.strip():
        return []  # Operator would tell a model that there is an empty summary
    origin = None if body.from_id is None else writing.last(body.from_id)
    fields: Fields = {"type": "branch_summary", "from_id": origin or ROOT, "summary": body.summary}
    return [{**fields, **_details(body), "from_hook": False}]


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> list[Fields]:
    if not isinstance(body, ModelChange):
        return []
    provider, colon, model = body.model.partition(":")
    named = (model, provider) if colon else (body.model, NO_MODEL)
    return [{"type": "model_change", "model_id": named[0], "provider_id": named[1]}]


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> list[Fields]:
    if not isinstance(body, ThinkingChange):
        return []
    return [{"type": "thinking_level_change", "thinking_level": body.level}]


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> list[Fields]:
    return [custom(body.custom_type, body.data)] if isinstance(body, Custom) else []


def _custom_message(_entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    if not isinstance(body, CustomMessage) or not body.in_context:
        return []
    shown, details = body.is_displayed, body.details
    return [_shown(body.custom_type, body.parts, writing, is_displayed=shown, details=details)]


def _leaf(_entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    if not isinstance(body, LeafMoved):
        return []
    return [leaf(None if body.target is None else writing.last(body.target))]


def _label(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    target = None if entry.about is None else writing.last(entry.about)
    return [label(target, body.text)] if isinstance(body, Label) and target is not None else []


def _title(_entry: Entry, body: Body, _writing: Writing) -> list[Fields]:
    if not isinstance(body, SessionInfoChanged) or not isinstance(body.title, str):
        return []
    return [title(body.title)]


_RECORDS: dict[str, Callable[[Entry, Body, Writing], list[Fields]]] = {
    MESSAGE: _message,
    Compaction.kind: _compaction,
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message,
    LeafMoved.kind: _leaf,
    Label.kind: _label,
    SessionInfoChanged.kind: _title,
}
