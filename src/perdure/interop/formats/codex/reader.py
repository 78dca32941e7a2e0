"""Read Codex rollouts: lines with `type` and `payload`, and lines of older versions without them.

A rollout is one chain: each item follows the previous one. A rollback moves the leaf (the end of
the conversation) back to before the undone turns. The response items of a rollout form the
conversation. Events repeat the conversation for display and become ``imported_record`` entries.
Usage, names and rollbacks are read from events, because only events contain them.
Source: openai/codex, ``codex-rs/protocol/src/protocol.rs`` and ``models.rs``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.fields import (
    Fields,
    count_in,
    fields_of,
    list_in,
    name_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.lines import Line
from perdure.codecs.shared_keys import model_name
from perdure.interop.formats.codex.messages import READ_ITEMS, body_of, retained_of, usage_of
from perdure.interop.formats.handover import handover_in
from perdure.interop.formats.items import Item, ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.kinds import Compaction, Custom, CustomMessage, ModelChange, ThinkingChange
from perdure.session.messages import Message, TextPart
from perdure.session.notes import ImportedRecord, LeafMoved, SessionInfoChanged

FORMAT: Final = "codex"
ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
"""Types of lines whose content is in the field ``payload``."""

PROVIDER = "openai"

QUIET = frozenset(
    {"ghost_snapshot", "web_search_call", "compaction", "compaction_summary", "other"}
)
"""Types of response items that are known not to belong to the conversation."""

APART = frozenset({"world_state", "token_usage_record"})
"""Types of lines of Codex 0.16x and later that add nothing to the conversation."""

_METADATA = (
    *("originator", "cli_version", "source", "model_provider", "git", "forked_from_id"),
    *("agent_nickname", "agent_role"),
)
_CWD = re.compile(r"<cwd>([^<]+)</cwd>|Current working directory: (.+)")

_NAMED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""Matches the session id at the end of a rollout's file name."""

_BARE_FIELDS = {
    "reasoning": "encrypted_content",
    "function_call": "call_id",
    "function_call_output": "call_id",
}
_CONTENT = frozenset({"input_text", "output_text", "input_image"})


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header`; if the file has no header, set the session id from the file's name."""
    found = _NAMED.search(path.stem)
    if header.session is not None or found is None:
        return header
    return msgspec.structs.replace(header, session=found[0])


class Reader(LineReader):
    """Reads a rollout and adds its items to `draft`."""

    foreign = "it is not a record of a Codex rollout"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self.model: str | None = None
        self.provider = PROVIDER
        self.effort: str | None = None
        self.told: Fields | None = None  # the totals of the newest usage report
        self.unpaid: int | None = None  # the newest item of the model without usage
        self.cwd: str | None = None
        self.turns: list[int | None] = []  # the parent of each user message
        self._meta: Fields | None = None
        self._at: int | None = None

    @staticmethod
    def accepts(fields: Fields) -> bool:
        """Return whether the type of the line `fields` can be determined."""
        return _unwrap_line(fields)[0] is not None

    def take_record(self, record: Record) -> None:
        """Read one record."""
        record.at = time_in(record.fields, "timestamp")
        kind, record.fields = _unwrap_line(record.fields)
        if kind == "session_meta" and self._meta is None:
            self._take_header(record.line, record.fields)
            return
        record.at = record.at if record.at is not None else self._at
        if kind in _LINES:
            _LINES[kind](self, record)
        elif kind is not None:
            self.note(record, kind)

    def take_plain(self, fields: Fields, number: int, offset: int, length: int) -> bool:
        """Fast path: add a message in its envelope; return False for other records."""
        payload = object_in(fields, "payload")
        if payload is None or fields.get("type") != "response_item":
            return False
        if payload.get("type") != "message":
            return False
        body = body_of(payload, self.draft.media, self.model)
        if body is None:
            return False
        at = time_in(fields, "timestamp")
        before = self.leaf.node
        if at is None:
            at = self._at
        own = self.leaf.node = self.draft.put(
            Item(body, number, offset, length, 0, before, None, at)
        )
        _note_said(self, before, own, body)
        return True

    def _take_header(self, line: Line, header: Fields) -> None:
        self._meta = header
        self._at = self.draft.at = time_in(header, "timestamp")
        self.provider = name_in(header, "model_provider") or PROVIDER
        self.cwd = name_in(header, "cwd")
        self.draft.header_lines.append(line.number)

    def add(self, record: Record, body: ItemBody, *, ordinal: int = 0) -> int:
        """Append `body` to the conversation."""
        own = self.leaf.node = self.draft.add(record, body, self.leaf.node, ordinal=ordinal)
        return own

    def note(self, record: Record, kind: str) -> None:
        """Store `record` as a side entry."""
        self.draft.add(record, ImportedRecord(FORMAT, kind), self.leaf.node)

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        header = self._meta
        if header is None:
            return self.draft.finish(None, self.leaf.node, self.cwd)
        parent = _spawning(header)
        handover = handover_in(header)
        if handover is not None and str(handover.id) != name_in(header, "id"):
            handover = None
        described = SourceHeader(
            session=name_in(header, "id"),
            created_at=time_in(header, "timestamp"),
            cwd=self.cwd,
            metadata={name: header[name] for name in _METADATA if header.get(name) is not None},
            parent=parent or name_in(header, "forked_from_id"),
            is_subagent=parent is not None,
            handover=handover,
        )
        return self.draft.finish(described, self.leaf.node)


parse = whole_parser(FORMAT, Reader)


def _unwrap_line(fields: Fields) -> tuple[str | None, Fields]:
    """Return the type and content of a line.

    The first versions of Codex wrote lines without an envelope.
    """
    kind = name_in(fields, "type")
    if kind in ENVELOPES:
        payload = object_in(fields, "payload")
        return (None, fields) if payload is None else (kind, payload)
    if kind is not None:
        return ("response_item", fields) if "payload" not in fields else ("unknown", fields)
    if "record_type" in fields:
        return "state", fields
    return ("session_meta" if name_in(fields, "id") else None), fields


def _spawning(header: Fields) -> str | None:
    """Return the id of the session that started this session as a subagent, if any."""
    source = object_in(object_in(header, "source") or {}, "subagent") or {}
    return name_in(object_in(source, "thread_spawn") or {}, "parent_thread_id")


# -- lines


def _unknown(reader: Reader, record: Record) -> None:
    kind: str = record.fields["type"]
    if kind in APART:
        reader.note(record, kind)
        return
    reader.draft.warn("unknown", f"line {record.line.number}: {kind!r} is stored without effect")
    reader.add(record, Custom(f"codex:{kind}", record.fields.get("payload")))


def _turn_context(reader: Reader, record: Record) -> None:
    """Record a change of the model or of its reasoning effort."""
    model = model_name(reader.provider, name_in(record.fields, "model"))
    effort = name_in(record.fields, "effort")
    changes: list[ItemBody] = []
    if name_in(record.fields, "model") and model is not None and model != reader.model:
        reader.model = model
        changes.append(ModelChange(model))
    if effort is not None and effort != reader.effort:
        reader.effort = effort
        changes.append(ThinkingChange(effort))
    for ordinal, change in enumerate(changes):
        reader.add(record, change, ordinal=ordinal)
    if not changes:
        reader.note(record, "turn_context")


def _on_compacted(reader: Reader, record: Record) -> None:
    summary = text_in(record.fields, "message") or ""
    history = list_in(record.fields, "replacement_history")
    media = reader.draft.media
    retained = None if history is None else retained_of(history, summary, media)
    reader.add(record, Compaction(summary, reason="import", retained=retained))


def _response_item(reader: Reader, record: Record) -> None:
    item = record.fields
    kind = name_in(item, "type") or "nothing"
    body = body_of(item, reader.draft.media, reader.model)
    if body is not None:
        _add_said(reader, record, body)
    elif kind in READ_ITEMS:
        reader.draft.report_malformed(record.line, f"its {kind} lacks what belongs to one")
        reader.add(record, Custom("codex:response_item", item))
    else:
        if kind not in QUIET:
            text = f"line {record.line.number}: {kind!r} is stored without effect"
            reader.draft.warn("unknown", text)
        reader.note(record, f"response_item:{kind}")


def _add_said(reader: Reader, record: Record, body: Message | CustomMessage) -> None:
    before = reader.leaf.node
    _note_said(reader, before, reader.add(record, body), body)


def _note_said(reader: Reader, before: int | None, own: int, body: Message | CustomMessage) -> None:
    """Store facts about the message `body` that are needed to read later lines.

    `own` is the position of the message's item, and `before` is the position of its parent.
    """
    if isinstance(body, Message) and body.role == "assistant":
        reader.unpaid = own
    elif isinstance(body, Message) and body.role == "user":
        reader.turns.append(before)
    elif isinstance(body, CustomMessage) and reader.cwd is None:
        text = next((part.text for part in body.parts if isinstance(part, TextPart)), "")
        found = _CWD.search(text)
        reader.cwd = None if found is None else (found[1] or found[2]).strip()


def _event(reader: Reader, record: Record) -> None:
    kind = name_in(record.fields, "type") or "nothing"
    act = _EVENTS.get(kind)
    if act is None or not act(reader, record):
        reader.note(record, f"event_msg:{kind}")


# -- events with content that no response item has; each returns whether it made an item


def _token_count(reader: Reader, record: Record) -> bool:
    info = object_in(record.fields, "info") or {}
    total = object_in(info, "total_token_usage")
    is_new = total is None or total != reader.told
    usage = usage_of(info) if is_new else None
    reader.told = total
    if usage is not None and reader.unpaid is not None:
        reader.draft.items.set_usage(reader.unpaid, usage)
        reader.unpaid = None
    return False


def _on_name(reader: Reader, record: Record) -> bool:
    name = (text_in(record.fields, "thread_name") or "").strip()
    if name:
        reader.draft.add(record, SessionInfoChanged(title=name), None)
    return bool(name)


def _rolled_back(reader: Reader, record: Record) -> bool:
    count = min(count_in(record.fields, "num_turns"), len(reader.turns))
    if not count:
        return False
    before, reader.leaf.node = reader.leaf.node, reader.turns[-count]
    del reader.turns[-count:]
    reader.draft.add(record, LeafMoved(None), before, {"target": reader.leaf.node})
    return True


_EVENTS: dict[str, Callable[[Reader, Record], bool]] = {
    "token_count": _token_count,
    "thread_name_updated": _on_name,
    "thread_rolled_back": _rolled_back,
}

_LINES: dict[str, Callable[[Reader, Record], None]] = {
    "response_item": _response_item,
    "event_msg": _event,
    "turn_context": _turn_context,
    "compacted": _on_compacted,
    "unknown": _unknown,
}


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a record of Codex, with or without an envelope."""
    kind = name_in(fields, "type")
    if kind in ENVELOPES:
        return object_in(fields, "payload") is not None
    if kind is None:  # the first versions, without envelopes
        has_header = name_in(fields, "id") is not None and text_in(fields, "timestamp") is not None
        return name_in(fields, "record_type") == "state" or (
            has_header and ("instructions" in fields or "git" in fields)
        )
    if kind == "message":
        parts = (fields_of(part) or {} for part in list_in(fields, "content") or ())
        return any(name_in(part, "type") in _CONTENT for part in parts)
    return kind in _BARE_FIELDS and _BARE_FIELDS[kind] in fields
