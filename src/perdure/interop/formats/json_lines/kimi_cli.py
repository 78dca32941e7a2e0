"""Read the sessions of Kimi CLI: ``context.jsonl``, one message per line.

All messages form one chain and have no ids and times; the name of the file's folder is the session
id. To revert or compact a conversation, Kimi CLI renames the file of the conversation and writes a
new file. The renamed file and the new file each become a session.
Source: ``soul/context.py`` and ``kosong/message.py`` of MoonshotAI/kimi-cli, as of 2026.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.content import answer_of, chat_call, parts_of, result_of
from perdure.codecs.fields import Fields, list_in, name_in, object_in, text_in
from perdure.codecs.media import Media
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, Part, TextPart, ThinkingPart
from perdure.session.notes import ImportedRecord

FORMAT: Final = "kimi-cli"

_RECORDS = ("_system_prompt", "_checkpoint", "_usage")
_FROM_KIMI = re.compile(r"<system>.*</system>\s*", re.DOTALL)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FAILED = "<system>ERROR"
_MEDIA = ("image_url", "audio_url", "video_url")


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a record, other than a message, that only Kimi CLI writes."""
    return text_in(fields, "role") in _RECORDS and "type" not in fields


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header` with the session id from the path of the file."""
    path = path.absolute()
    if path.stem == "context":
        return msgspec.structs.replace(header, session=path.parent.name)
    if not path.stem.startswith("context_"):
        session = path.stem if _UUID.fullmatch(path.stem) else None
        return msgspec.structs.replace(header, session=session)
    is_subagent = path.stem.startswith("context_sub")
    return msgspec.structs.replace(
        header,
        session=f"{path.parent.name}.{path.stem}",
        parent=path.parent.name if is_subagent else None,
        is_subagent=is_subagent,
    )


class Reader(LineReader):
    """Reads a session and adds its items to `draft`."""

    foreign = "it is not a record of a session of Kimi CLI"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self.header = SourceHeader()  # only the path of the file contains the id

    @staticmethod
    def accepts(fields: Fields) -> bool:
        """Return whether the record has a role."""
        return name_in(fields, "role") is not None

    def take_record(self, record: Record) -> None:
        """Read one record."""
        role: str = record.fields["role"]
        body = _body_of(role, record.fields, self.draft.media)
        if body is None:
            self.draft.add(record, ImportedRecord(FORMAT, role), self.leaf.node)
        else:
            self.leaf.node = self.draft.add(record, body, self.leaf.node)


parse = whole_parser(FORMAT, Reader)


def _body_of(role: str, fields: Fields, media: Media) -> ItemBody | None:
    content = fields.get("content")
    parts = parts_of([] if content is None else content, media, _part)
    if parts is None:
        return None
    if role == "user" and parts:
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        if _FROM_KIMI.fullmatch(text):
            return CustomMessage("kimi-cli:system", parts, is_displayed=False)
        return Message("user", parts)
    if role == "tool":
        call_id = name_in(fields, "tool_call_id")
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        is_error = bool(texts) and texts[0].startswith(_FAILED)
        result = None if call_id is None else result_of(call_id, parts, is_error=is_error)
        return None if result is None else Message("tool", (result,))
    return _answer(parts, fields) if role == "assistant" else None


def _answer(parts: tuple[Part, ...], fields: Fields) -> Message | None:
    calls = tuple(map(chat_call, list_in(fields, "tool_calls") or ()))
    if not parts and not calls:
        return None
    return answer_of(parts + calls)


def _part(fields: Fields, media: Media) -> Part | None:
    kind = text_in(fields, "type")
    if kind == "think":
        return ThinkingPart(text_in(fields, "think") or "")
    if kind in _MEDIA:
        address = text_in(object_in(fields, kind) or {}, "url") or ""
        return media.from_address(address) if address.startswith("data:") else None
    return None
