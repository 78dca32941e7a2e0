"""Read Cursor's chats: rows of ``state.vscdb``, one for each message and one for the chat.

A chat lists its messages in order. Each answer, thought or tool call is a separate message. If
Cursor is generating an answer, only the messages before this answer are read. Encryption keys of
Cursor's service are removed from the row of the chat.
Source: public programs that read the database, as of 2026.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from perdure.codecs.content import answer_of
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
from perdure.codecs.lines import Line, read_line
from perdure.interop.formats.databases.row_lines import DatabaseFormat, json_in, row_line, table_of
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.database import Database, Row
from perdure.interop.formats.sources.parse_state import Record
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.messages import (
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import ImportedRecord

FORMAT: Final = "cursor"
PROVIDER = "cursor"

_TABLE = "cursorDiskKV"
_CHAT, _MESSAGE = "composerData:", "bubbleId:"
_KEY_NAME = "encryptionkey"
_PERSON, _MODEL = 1, 2
_FAILED = ("error", "cancelled", "rejected")
_METADATA = ("unifiedMode", "forceMode", "_v")


# -- the database


def _ids(database: Database) -> Iterator[str]:
    within = "key >= 'composerData:' AND key < 'composerData;'"
    for row in database.rows(_TABLE, within, order="key", columns=("key",)):
        key = row["key"]
        if isinstance(key, str):
            yield key.removeprefix(_CHAT)


def _lines(database: Database, id: str) -> Iterator[bytes]:
    for chat in map(_as_text, database.rows(_TABLE, "key = ?", (_CHAT + id,), "key")):
        for message in _messages_of(fields_of(json_in(chat, "value")) or {}):
            key = f"{_MESSAGE}{id}:{message}"
            for row in database.rows(_TABLE, "key = ?", (key,), "key"):
                yield row_line(FORMAT, _TABLE, _as_text(row))
        yield row_line(FORMAT, _TABLE, _without_secrets(chat))


def _messages_of(chat: Fields) -> list[str]:
    """Return the ids of the messages in order, without the messages of an unfinished answer."""
    listed = [fields_of(each) or {} for each in list_in(chat, "fullConversationHeadersOnly") or ()]
    if text_in(chat, "status") == "generating":
        while listed and listed[-1].get("type") != _PERSON:
            listed.pop()
    return [id for each in listed if (id := name_in(each, "bubbleId")) is not None]


def _as_text(row: Row) -> Row:
    """Return `row` with its value as text; some versions of Cursor store this value as bytes."""
    coded = text_in(fields_of(row.get("value")) or {}, "base64")
    if coded is None:
        return row
    try:
        return {**row, "value": b64decode(coded).decode()}
    except UnicodeDecodeError:
        return row


def _without_secrets(chat: Row) -> Row:
    text = text_in(chat, "value") or ""
    if _KEY_NAME not in text.lower():
        return chat
    value = _without_keys(read_line(text.encode()).value)
    return {**chat, "value": msgspec.json.encode(value).decode()}


def _without_keys(value: object) -> object:
    if isinstance(value, list):
        return [_without_keys(each) for each in cast("list[object]", value)]
    fields = fields_of(value)
    if fields is None:
        return value
    kept = {name for name in fields if not name.lower().endswith(_KEY_NAME)}
    return {name: _without_keys(fields[name]) for name in fields if name in kept}


DATABASE: Final = DatabaseFormat(
    tables={_TABLE: ("key", "value")}, file_names=("state.vscdb",), ids=_ids, lines=_lines
)


# -- the lines of one chat


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a row of Cursor's database."""
    return table_of(fields, FORMAT) is not None


class Reader(LineReader):
    """Reads a chat and adds its items to `draft`."""

    foreign = "it is not a row of a chat of Cursor"
    accepts = staticmethod(is_record)

    def take_record(self, record: Record) -> None:
        """Read one record."""
        row = object_in(record.fields, "row") or {}
        key = name_in(row, "key") or ""
        value = fields_of(json_in(row, "value"))
        if value is None:
            self.draft.report_malformed(record.line, "its value is not a JSON object")
            self.draft.add(record, ImportedRecord(FORMAT, _TABLE), self.leaf.node)
        elif key.startswith(_CHAT):
            self._take_chat(record.line, key.removeprefix(_CHAT), value)
        else:
            record.id, record.at = key or None, time_in(value, "createdAt")
            self._take_message(record, value, 0)

    def _take_chat(self, line: Line, id: str, chat: Fields) -> None:
        self.draft.header_lines.append(line.number)
        created_at = time_in(chat, "createdAt")
        address = object_in(object_in(chat, "workspaceIdentifier") or {}, "uri") or {}
        self.header = self.header or SourceHeader(
            session=name_in(chat, "composerId") or id or None,
            created_at=created_at,
            cwd=name_in(address, "fsPath"),
            metadata={name: chat[name] for name in _METADATA if chat.get(name) is not None},
            is_saved_whole=True,  # the row of the chat changes with every message
        )
        ordinal = 0
        for each in list_in(chat, "conversation") or ():  # of earlier versions
            message = fields_of(each) or {}
            record = Record(line, message, at=time_in(message, "createdAt"))
            ordinal = self._take_message(record, message, ordinal)
        record = Record(line, chat, at=created_at)
        self.draft.add_title(record, name_in(chat, "name"), ordinal=ordinal)

    def _take_message(self, record: Record, message: Fields, ordinal: int) -> int:
        """Add the items of `message`, numbered from `ordinal`; return the next free number."""
        bodies = _bodies_of(message, record.id or str(ordinal))
        if not bodies:
            self.draft.add(
                record, ImportedRecord(FORMAT, "bubble"), self.leaf.node, ordinal=ordinal
            )
            return ordinal + 1
        for number, body in enumerate(bodies, ordinal):
            self.leaf.node = self.draft.add(record, body, self.leaf.node, ordinal=number)
        return ordinal + len(bodies)


parse = whole_parser(FORMAT, Reader)


def _bodies_of(message: Fields, own: str) -> list[ItemBody]:
    text = text_in(message, "text")
    if message.get("type") == _PERSON:
        return [Message("user", (TextPart(text),))] if text else []
    if message.get("type") != _MODEL:
        return []
    parts: list[Part] = [ThinkingPart(thought) for thought in _thoughts_of(message)]
    if text:
        parts.append(TextPart(text))
    used = object_in(message, "toolFormerData") or {}
    name = name_in(used, "name")
    call_id = name_in(used, "toolCallId") or own
    if name is not None:
        parts.append(ToolCallPart(call_id, name, _arguments(used)))
    if not parts:
        return []
    model = name_in(object_in(message, "modelInfo") or {}, "modelName")
    counted = object_in(message, "tokenCount") or {}
    usage = Usage(count_in(counted, "inputTokens"), count_in(counted, "outputTokens"))
    answer = answer_of(parts, provider=PROVIDER, model=model, usage=usage)
    result = None if name is None else _result(call_id, name, used)
    return [answer] if result is None else [answer, Message("tool", (result,))]


def _thoughts_of(message: Fields) -> Iterator[str]:
    blocks = list_in(message, "allThinkingBlocks") or [message.get("thinking")]
    for block in blocks:
        if thought := text_in(fields_of(block) or {}, "text"):
            yield thought


def _arguments(used: Fields) -> Fields:
    """Return the arguments of a tool call.

    Cursor stores arguments as a string that contains JSON.
    """
    for key in ("rawArgs", "params"):
        found = object_in(used, key) or fields_of(json_in(used, key))
        if found:
            return found
    written = text_in(used, "rawArgs") or text_in(used, "params")
    return {"input": written} if written and written != "{}" else {}


def _result(call_id: str, name: str, used: Fields) -> ToolResultPart | None:
    status = text_in(used, "status")
    is_error = status in _FAILED
    text = text_in(used, "result") or text_in(used, "error")
    if text is None and used.get("result") is not None:
        text = msgspec.json.encode(used["result"]).decode()
    if text is None and not is_error:
        return None  # it was still running
    return ToolResultPart(call_id, text or status or "", is_error=is_error, name=name)
