"""Read the threads of Amp: ``threads/T-*.json``, one JSON document with a thread and its messages.

The messages become lines. The other data of the document becomes the last line, because it changes
with every message, and an import expects that earlier lines do not change. The messages form one
chain. Subagents' threads are separate sessions.
Source: public programs that read these files, as of 2026.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from perdure.bounds.files import read_named
from perdure.codecs.content import answer_of, call_of, parts_of, result_of
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
from perdure.codecs.media import Media
from perdure.errors import FormatError
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.parse_state import Record
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.messages import Message, Part, TextPart, ThinkingPart, ToolResultPart, Usage

FORMAT: Final = "amp"
FILE_NAME: Final = "T-*.json"
PROVIDER = "amp"

_METADATA = ("v", "agentMode")
_FAILED = ("error", "cancelled", "rejected-by-user")


def gather(path: Path) -> Held:
    """Return the thread in the document `path`, as lines.

    Raises: FormatError if the document cannot be read or is not a thread. Raises LimitExceeded if
    the document is too large.
    """
    try:
        content = read_named(path, "import_file_bytes", path.name)
    except OSError as error:
        raise FormatError(path.name, f"it cannot be read ({error.strerror})") from error
    reading = read_line(content)
    document = fields_of(reading.value) or {}
    messages = list_in(document, "messages")
    if messages is None or name_in(document, "id") is None:
        raise FormatError(path.name, reading.failure or "it has no thread of Amp")
    rest = {name: value for name, value in document.items() if name != "messages"}
    lines = [_line("message", message) for message in messages]
    return Held(b"\n".join([*lines, _line("thread", rest), b""]), path.name)


def _line(kind: str, value: object) -> bytes:
    return msgspec.json.encode({"program": FORMAT, kind: value})


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is the line of a message or the line with the thread's other data."""
    return fields.get("program") == FORMAT and ("message" in fields or "thread" in fields)


class Reader(LineReader):
    """Reads a thread and adds its items to `draft`."""

    foreign = "it is not a message of a thread of Amp"
    accepts = staticmethod(is_record)

    def take_record(self, record: Record) -> None:
        """Read one record."""
        if "thread" in record.fields:
            self._take_thread(record.line, object_in(record.fields, "thread") or {})
        else:
            self._take_message(record.line, fields_of(record.fields["message"]))

    def _take_thread(self, line: Line, thread: Fields) -> None:
        self.draft.header_lines.append(line.number)
        created_at = time_in(thread, "created")
        self.header = self.header or SourceHeader(
            session=name_in(thread, "id"),
            created_at=created_at,
            cwd=_folder_of(thread),
            metadata={name: thread[name] for name in _METADATA if thread.get(name) is not None},
            is_saved_whole=True,
        )
        self.draft.add_title(Record(line, thread, at=created_at), name_in(thread, "title"))

    def _take_message(self, line: Line, message: Fields | None) -> None:
        record = Record(line, message or {})
        if message is None:
            self.draft.report_malformed(line, self.foreign)
        elif isinstance(number := message.get("messageId"), int | str):
            record.id = f"message:{number}"
        record.at = time_in(object_in(record.fields, "meta") or {}, "sentAt")
        bodies = _bodies_of(record.fields, self.draft.media)
        self.leaf.node = self.draft.add_chain(record, bodies, self.leaf.node)


parse = whole_parser(FORMAT, Reader)


def _bodies_of(message: Fields, media: Media) -> list[ItemBody]:
    content = list_in(message, "content") or []
    pieces = [fields_of(each) or {} for each in content]
    results = tuple(part for each in pieces if (part := _result(each, media)) is not None)
    said_in = [
        item
        for item, fields in zip(content, pieces, strict=True)
        if text_in(fields, "type") != "tool_result"
    ]
    said = parts_of(said_in, media, _part) or ()
    bodies: list[ItemBody] = [Message("tool", results)] if results else []
    role = text_in(message, "role")
    if said and role == "user":
        bodies.append(Message("user", said))
    elif said and role == "assistant":
        used = object_in(message, "usage") or {}
        model = name_in(used, "model")
        bodies.append(answer_of(said, provider=PROVIDER, model=model, usage=_usage(used)))
    return bodies


def _part(fields: Fields, media: Media) -> Part | None:
    kind = text_in(fields, "type")
    if kind == "thinking":
        return ThinkingPart(text_in(fields, "thinking") or "")
    if kind == "redacted_thinking":
        return ThinkingPart("", is_redacted=True)
    if kind == "image":
        source = object_in(fields, "source") or {}
        kind = name_in(source, "mediaType") or name_in(source, "media_type")
        return media.part(text_in(source, "data"), kind)
    if kind != "tool_use":
        return None
    return call_of(name_in(fields, "id"), name_in(fields, "name"), object_in(fields, "input"))


def _result(fields: Fields, media: Media) -> ToolResultPart | None:
    call_id = name_in(fields, "toolUseID")
    if text_in(fields, "type") != "tool_result" or call_id is None:
        return None
    run = object_in(fields, "run") or {}
    result = run.get("result", run.get("error"))
    is_error = text_in(run, "status") in _FAILED
    listed = list_in(object_in(run, "result") or {}, "content")
    if listed is not None:
        return result_of(call_id, parts_of(listed, media, _shown) or (), is_error=is_error)
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    parts = () if result is None else (TextPart(text),)
    return result_of(call_id, parts, is_error=is_error)


def _shown(fields: Fields, media: Media) -> Part | None:
    return media.part(text_in(fields, "data"), name_in(fields, "mimeType"))


def _usage(used: Fields) -> Usage:
    return Usage(
        input_tokens=count_in(used, "inputTokens"),
        output_tokens=count_in(used, "outputTokens"),
        cache_read_tokens=count_in(used, "cacheReadInputTokens"),
        cache_write_tokens=count_in(used, "cacheCreationInputTokens"),
    )


def _folder_of(thread: Fields) -> str | None:
    """Return the path of the working folder; the thread contains it as a file URL."""
    initial = object_in(object_in(thread, "env") or {}, "initial") or {}
    for tree in list_in(initial, "trees") or ():
        try:
            address = urlsplit(text_in(fields_of(tree) or {}, "uri") or "")
        except ValueError:
            continue
        if address.scheme == "file" and address.path:
            return unquote(address.path)
    return None
