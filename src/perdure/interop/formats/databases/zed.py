"""Read Zed's threads: each row of ``threads.db`` contains one thread as a JSON document.

Most documents are compressed. The messages of the document become lines. The other data of the
document becomes the last line, because it changes with every message, and an import expects that
earlier lines do not change. The messages form one chain. Messages have no time, so each gets the
time when the thread began. Subagents' threads are separate sessions.
Source: ``db.rs``, ``thread.rs`` and ``legacy_thread.rs`` in ``crates/agent`` of zed-industries/zed,
and ``request.rs`` in ``crates/language_model_core``, as of 2026.
"""

from __future__ import annotations

import importlib
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from perdure.bounds.limits import limits
from perdure.codecs.content import answer_of, call_of, result_of
from perdure.codecs.fields import (
    Fields,
    fields_of,
    flag_in,
    list_in,
    name_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.lines import Line, read_line
from perdure.codecs.media import Media, unknown_part
from perdure.errors import FormatError, LimitExceeded
from perdure.errors.advice import install_of
from perdure.interop.formats.databases.row_lines import DatabaseFormat
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.database import Database
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.kinds import Compaction, CustomMessage
from perdure.session.messages import Message, Part, TextPart, ThinkingPart, ToolResultPart

FORMAT: Final = "zed"

_TABLE = "threads"
_METADATA = ("version", "model", "profile", "imported")
_PICTURE = "image/png"
"""The media type in which Zed stores every picture."""
_RESUMED = "Continue where you left off"
"""The text that Zed sends to the model for a message that resumes the thread."""
_MODULE = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


# -- the database


def _ids(database: Database) -> Iterator[str]:
    for row in database.rows(_TABLE, columns=("id",)):
        if isinstance(id := row["id"], str):
            yield id


def _lines(database: Database, id: str) -> Iterator[bytes]:
    for row in database.rows(_TABLE, "id = ?", (id,)):
        name = f"{database.name} {id}"
        document = fields_of(read_line(_document(row.pop("data"), row["data_type"], name)).value)
        messages = list_in(document or {}, "messages")
        if document is None or messages is None:
            raise FormatError(name, "it has no thread of Zed")
        rest = {key: value for key, value in document.items() if key != "messages"}
        at = _beginning_of(document, row)
        for message in messages:
            yield msgspec.json.encode({"program": FORMAT, "at": at, "message": message})
        yield msgspec.json.encode({"program": FORMAT, "thread": rest, "row": row})


DATABASE: Final = DatabaseFormat(
    tables={_TABLE: ("id", "summary", "updated_at", "data_type", "data")},
    file_names=("threads.db",),
    ids=_ids,
    lines=_lines,
)


def _document(stored: object, kind: object, name: str) -> bytes:
    """Return the JSON document of a row.

    Raises: FormatError if the document cannot be read. Raises LimitExceeded if the document is too
    large.
    """
    coded = text_in(fields_of(stored) or {}, "base64")
    data = str(stored).encode() if coded is None else b64decode(coded)
    if kind == "json":
        return data
    if kind != "zstd":
        raise FormatError(name, f"unknown data type {kind!r}: Zed knows json and zstd")
    try:
        library: Any = importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        reason = f"it is compressed with zstd; {install_of('zed')}"
        raise FormatError(name, reason) from error
    most = limits().import_file_bytes
    reader = library.ZstdDecompressor()
    try:
        document: bytes = reader.decompress(data, most + 1)
    except library.ZstdError as error:
        raise FormatError(name, f"it cannot be decompressed ({error})") from error
    if len(document) > most:
        raise LimitExceeded(name, "import_file_bytes", most)
    if not reader.eof:
        raise FormatError(name, "its compressed data is cut off")
    return document


# -- the lines of one thread


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is the line of a message or the line with the thread's other data."""
    return fields.get("program") == FORMAT and ("message" in fields or "thread" in fields)


class Reader(LineReader):
    """Reads a thread and adds its items to `draft`."""

    foreign = "it is not a message of a thread of Zed"
    accepts = staticmethod(is_record)

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._asked = ""  # the last message of a person, and how many messages follow it
        self._following = 0

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        if "thread" in fields:
            thread, row = object_in(fields, "thread") or {}, object_in(fields, "row") or {}
            self._take_thread(record.line, thread, row)
        else:
            self._take_message(record.line, fields)

    def _take_thread(self, line: Line, thread: Fields, row: Fields) -> None:
        self.draft.header_lines.append(line.number)
        within = object_in(thread, "subagent_context") or {}
        parent = name_in(row, "parent_id") or name_in(within, "parent_thread_id")
        created = time_in({"at": _beginning_of(thread, row) or row.get("updated_at")}, "at")
        self.header = self.header or SourceHeader(
            session=name_in(row, "id"),
            created_at=created,
            cwd=_folder_of(thread, row),
            metadata={name: thread[name] for name in _METADATA if thread.get(name)},
            parent=parent,
            is_subagent=parent is not None,
            is_saved_whole=True,  # the row of the thread changes with every message
        )
        title = name_in(row, "summary") or name_in(thread, "title")
        self.draft.add_title(Record(line, thread, at=created), title)

    def _take_message(self, line: Line, told: Fields) -> None:
        message: object = told["message"]
        fields = fields_of(message) or {}
        record = Record(line, fields, self._id_of(fields), at=time_in(told, "at"))
        if not fields and message != "Resume":
            self.draft.report_malformed(line, self.foreign)
        bodies = list(_bodies_of(message, fields, self.draft.media))
        self.leaf.node = self.draft.add_chain(record, bodies, self.leaf.node)

    def _id_of(self, message: Fields) -> str:
        """Return the id of `message`.

        Zed gives ids only to messages of people, and removes the id when a message is edited.
        """
        own = name_in(object_in(message, "User") or {}, "id")
        if own is not None:
            self._asked, self._following = own, 0
            return own
        self._following += 1
        return f"{self._asked}:{self._following}"


parse = whole_parser(FORMAT, Reader)


def _beginning_of(thread: Fields, row: Fields) -> str | None:
    """Return the time at which the thread began.

    The result is the time of the thread's project snapshot or, if there is no snapshot, the time at
    which the row was created. A row of an earlier version of Zed has only the time of the last
    change, which is not used.
    """
    snapshot = object_in(thread, "initial_project_snapshot") or {}
    return name_in(snapshot, "timestamp") or name_in(row, "created_at")


def _folder_of(thread: Fields, row: Fields) -> str | None:
    """Return the first folder of the thread.

    The row stores the folders in sorted order, and their original order in another column.
    """
    folders = (name_in(row, "folder_paths") or "").splitlines()
    order = (text_in(row, "folder_paths_order") or "").split(",")
    if folders:
        return folders[order.index("0")] if "0" in order[: len(folders)] else folders[0]
    snapshot = object_in(thread, "initial_project_snapshot") or {}
    for each in list_in(snapshot, "worktree_snapshots") or ():
        if folder := name_in(fields_of(each) or {}, "worktree_path"):
            return folder
    return None


def _bodies_of(message: object, fields: Fields, media: Media) -> Iterator[ItemBody]:
    if message == "Resume":
        yield CustomMessage("zed:resume", (TextPart(_RESUMED),), is_displayed=False)
    elif (said := object_in(fields, "User")) is not None:
        parts = tuple(_part(each, media) for each in list_in(said, "content") or ())
        if parts:
            yield Message("user", parts)
    elif (answer := object_in(fields, "Agent")) is not None:
        parts = tuple(_part(each, media) for each in list_in(answer, "content") or ())
        results = (object_in(answer, "tool_results") or {}).values()
        yield from _answer_and_results(parts, results, media)
    elif (compaction := object_in(fields, "Compaction")) is not None:
        if summary := name_in(compaction, "Summary"):
            yield Compaction(summary, reason="import")
    else:
        yield from _earlier_bodies(fields, media)


def _earlier_bodies(message: Fields, media: Media) -> Iterator[ItemBody]:
    """Yield the bodies for a message in the form of Zed's thread versions before 0.3.0."""
    parts = [_part(each, media) for each in list_in(message, "segments") or ()]
    if text := name_in(message, "text"):
        parts.append(TextPart(text))
    results = list_in(message, "tool_results") or []
    match text_in(message, "role"):
        case "assistant":
            used = list_in(message, "tool_uses") or ()
            calls = [_call(fields_of(each) or {}) or unknown_part(each) for each in used]
            yield from _answer_and_results([*parts, *calls], results, media)
        case "user" if results:  # of version 0.1.0; its text only says that results follow
            yield from _answer_and_results((), results, media)
        case "user":
            if context := name_in(message, "context"):
                parts.append(TextPart(context))
            if parts:
                yield Message("user", tuple(parts))
        case "system" if parts:
            yield Message("system", tuple(parts))
        case _:
            pass


def _answer_and_results(
    parts: Iterable[Part], results: Iterable[object], media: Media
) -> Iterator[ItemBody]:
    parts = tuple(parts)
    if parts:
        yield answer_of(parts)
    found = (_result(fields_of(each) or {}, media) for each in results)
    told = tuple(result for result in found if result is not None)
    if told:
        yield Message("tool", told)


def _part(item: object, media: Media) -> Part:
    """Return a piece of content as a message part.

    The JSON object of a piece has one key, the kind of the piece. Before version 0.3.0 of Zed's
    thread format, the field `type` contained the kind.
    """
    fields = fields_of(item) or {}
    kind, value = next(iter(fields.items()), ("", None))
    inner = fields_of(value) or {}
    text = text_in(fields, "text")
    found: Part | None = None
    match text_in(fields, "type") or kind:
        case "Text" if isinstance(value, str):
            found = TextPart(value)
        case "text" if text is not None:
            found = TextPart(text)
        case "Thinking" | "thinking":
            found = ThinkingPart(text_in(inner, "text") or text or "")
        case "RedactedThinking":
            found = ThinkingPart("", is_redacted=True)
        case "ToolUse":
            found = _call(inner)
        case "Image":
            found = media.part(text_in(inner, "source"), _PICTURE)
        case "Mention":
            found = TextPart(_mentioned(inner))
        case _:
            pass
    return unknown_part(item) if found is None else found


def _mentioned(fields: Fields) -> str:
    """Return a mention's text for the model: the mentioned item's name and its former content."""
    (kind, place), *_ = (object_in(fields, "uri") or {"": None}).items()
    told = fields_of(place) or {}
    names = ("abs_path", "name", "url", "skill_file_path", "file_path", "base_ref")
    name = next((found for key in names if (found := name_in(told, key))), kind)
    content = text_in(fields, "content")
    return f"@{name}\n{content}" if content else f"@{name}"


def _call(fields: Fields) -> Part | None:
    given: object = fields.get("input")
    tagged = fields_of(given) or {}
    if tagged.keys() == {"type", "value"} and tagged["type"] in ("json", "text"):
        given = tagged["value"]
    arguments = fields_of(given)
    if arguments is None and given is not None:
        arguments = {"input": given}
    return call_of(name_in(fields, "id"), name_in(fields, "name"), arguments)


def _result(fields: Fields, media: Media) -> ToolResultPart | None:
    call_id = name_in(fields, "tool_use_id")
    if call_id is None:
        return None
    content = fields.get("content")
    pieces = list_in(fields, "content")
    pieces = [content] if pieces is None else pieces
    parts = [part for each in pieces if (part := _shown(each, media)) is not None]
    output = text_in(fields, "output")
    if not parts and output:
        parts = [TextPart(output)]
    name = name_in(fields, "tool_name")
    return result_of(call_id, parts, is_error=flag_in(fields, "is_error"), name=name)


def _shown(item: object, media: Media) -> Part | None:
    """Return a part of a tool result.

    `item` is text, or an object with text or a picture. The object's keys can have any case.
    """
    if isinstance(item, str):
        return TextPart(item)
    fields = {key.lower(): value for key, value in (fields_of(item) or {}).items()}
    text = text_in(fields, "text")
    if text is not None:
        return TextPart(text)
    picture = {k.lower(): v for k, v in (object_in(fields, "image") or fields).items()}
    return media.part(text_in(picture, "source"), _PICTURE)
