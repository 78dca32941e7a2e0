"""Read the conversations of OpenHands: a folder with a file for each event.

Each event becomes a line, after a first line with the id and the working folder. Only the id and
the working folder of ``base_state.json`` are read, because this file also contains settings and
keys of the model. Events form one chain; events that no model receives are stored outside the
conversation. A condensation, with which OpenHands shortens the context, becomes a compaction.
Source: ``sdk/event`` and ``conversation/persistence_const.py`` of OpenHands/software-agent-sdk, as
of 2026.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from perdure.bounds.limits import limits, require_within
from perdure.codecs.content import answer_of, parts_of, result_of
from perdure.codecs.fields import (
    Fields,
    fields_of,
    flag_in,
    list_in,
    name_in,
    object_in,
    text_in,
    texts_in,
    time_in,
)
from perdure.codecs.lines import read_line
from perdure.codecs.media import Media
from perdure.errors import FormatError
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.kinds import Compaction
from perdure.session.messages import (
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord
from perdure.stores.regular_files import check_folder, read_regular

FORMAT: Final = "openhands"
FILE_NAME: Final = "base_state.json"

_EVENT_FILE = re.compile(r"event-(\d{5,12})-[0-9a-fA-F-]{8,64}\.json")
_SOURCES = ("agent", "user", "environment")
_RESULTS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


# -- the folder


def gather(path: Path) -> Held:
    """Return the conversation in the folder of the file `path`, as lines.

    Raises: FormatError if a file cannot be read. Raises LimitExceeded if there are too many files.
    """
    folder = path.absolute().parent
    name = f"{folder.name}/{path.name}"
    most = limits().import_file_bytes
    try:
        state = fields_of(read_line(read_regular(path, most_bytes=most)).value) or {}
        check_folder(folder / "events")
        first = {
            "id": name_in(state, "id") or folder.name,
            "working_dir": name_in(object_in(state, "workspace") or {}, "working_dir"),
        }
        lines = [msgspec.json.encode({"program": FORMAT, "conversation": first})]
        size = len(lines[0])
        for file in _event_files(folder / "events"):
            lines.append(_one_line(read_regular(file, most_bytes=most)))
            size += len(lines[-1]) + 1
            require_within("import_file_bytes", size, name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FormatError(name, f"a file of its folder cannot be read ({reason})") from error
    return Held(b"\n".join([*lines, b""]), name)


def _event_files(folder: Path) -> list[Path]:
    found: list[tuple[int, Path]] = []
    for number, file in enumerate(folder.iterdir(), 1):
        require_within("import_folders", number, str(folder))
        named = _EVENT_FILE.fullmatch(file.name)
        if named:
            found.append((int(named[1]), file))
    return [file for _, file in sorted(found)]


def _one_line(event: bytes) -> bytes:
    if b"\n" not in event.strip():
        return event.strip()
    reading = read_line(event)
    return msgspec.json.encode(reading.value) if reading.is_json else event.replace(b"\n", b" ")


# -- the lines


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is an event of OpenHands, or the first line of a conversation."""
    if fields.get("program") == FORMAT:
        return object_in(fields, "conversation") is not None
    return (
        name_in(fields, "kind") is not None
        and text_in(fields, "source") in _SOURCES
        and name_in(fields, "id") is not None
        and "timestamp" in fields
    )


class Reader(LineReader):
    """Reads a conversation and adds its items to `draft`."""

    foreign = "it is not an event of a conversation of OpenHands"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._nodes: dict[str, int] = {}  # event -> item
        self._order: list[int] = []  # these items

    @staticmethod
    def accepts(fields: Fields) -> bool:
        """Return whether `fields` is an event, or the first line of a conversation."""
        return is_record(fields) or name_in(fields, "kind") is not None

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        if fields.get("program") == FORMAT:
            self.draft.header_lines.append(record.line.number)
            header = object_in(fields, "conversation")
            if header is not None and self.header is None:
                self.header = SourceHeader(
                    name_in(header, "id"), cwd=name_in(header, "working_dir")
                )
        else:
            record.id, record.at = name_in(fields, "id"), time_in(fields, "timestamp")
            self._take_event(record)

    def _take_event(self, record: Record) -> None:
        kind, fields = text_in(record.fields, "kind") or "", record.fields
        summary = name_in(fields, "summary") if kind == "Condensation" else None
        if summary is not None:
            kept = self._kept_after(texts_in(fields, "forgotten_event_ids"))
            marker = Compaction(summary, reason="import")
            self.leaf.node = self.draft.add(record, marker, self.leaf.node, {"first_kept": kept})
            return
        body = _body_of(kind, fields, self.draft.media)
        if body is None:
            self.draft.add(record, ImportedRecord(FORMAT, kind), self.leaf.node)
            return
        node = self.leaf.node = self.draft.add(record, body, self.leaf.node)
        if record.id is not None:
            self._nodes[record.id] = node
            self._order.append(node)

    def _kept_after(self, forgotten: Iterable[str]) -> int | None:
        """Return the first item after the last of the `forgotten` events; None if none follows."""
        last = max((self._nodes[each] for each in forgotten if each in self._nodes), default=-1)
        following = bisect_right(self._order, last)
        return self._order[following] if following < len(self._order) else None


parse = whole_parser(FORMAT, Reader)


def _body_of(kind: str, fields: Fields, media: Media) -> ItemBody | None:
    if kind == "MessageEvent":
        return _message(object_in(fields, "llm_message") or {}, media)
    if kind == "ActionEvent":
        return _action(fields, media)
    result = _result(kind, fields, media) if kind in _RESULTS else None
    return None if result is None else Message("tool", (result,))


def _message(said: Fields, media: Media) -> Message | None:
    parts = _parts(said.get("content"), media)
    if text_in(said, "role") == "user":
        return Message("user", parts) if parts else None
    parts = (*_thoughts(said), *parts)
    if text_in(said, "role") != "assistant" or not parts:
        return None
    return answer_of(parts)


def _action(fields: Fields, media: Media) -> Message | None:
    call = object_in(fields, "tool_call") or {}
    call_id = name_in(fields, "tool_call_id") or name_in(call, "id")
    name = name_in(fields, "tool_name") or name_in(call, "name")
    if call_id is None or name is None:
        return None
    written = text_in(call, "arguments")
    read = read_line((written or "").encode()).value
    arguments: Fields | None = fields_of(read)
    if arguments is None and written:
        arguments = {"input": written}
    parts = (*_thoughts(fields), *_parts(fields.get("thought"), media))
    asked = ToolCallPart(call_id, name, arguments or object_in(fields, "action") or {})
    return answer_of((*parts, asked))


def _result(kind: str, fields: Fields, media: Media) -> ToolResultPart | None:
    call_id, name = name_in(fields, "tool_call_id"), name_in(fields, "tool_name")
    if call_id is None:
        return None
    if kind != "ObservationEvent":
        text = text_in(fields, "error") or text_in(fields, "rejection_reason") or ""
        return ToolResultPart(call_id, text, is_error=True, name=name)
    seen = object_in(fields, "observation") or {}
    shown = _parts(seen.get("content"), media) or _parts(seen.get("output"), media)
    parts = (*shown, *_parts(fields.get("extended_content"), media))
    is_error = flag_in(seen, "is_error") or flag_in(seen, "error")
    return result_of(call_id, parts, is_error=is_error, name=name)


def _thoughts(fields: Fields) -> list[Part]:
    if text := text_in(fields, "reasoning_content"):
        return [ThinkingPart(text)]
    blocks = (fields_of(each) or {} for each in list_in(fields, "thinking_blocks") or ())
    return [ThinkingPart(text) for block in blocks if (text := text_in(block, "thinking"))]


def _parts(content: object, media: Media) -> tuple[Part, ...]:
    found = parts_of([] if content is None else content, media, _media_of) or ()
    return tuple(part for part in found if part != TextPart(""))


def _media_of(fields: Fields, media: Media) -> Part | None:
    addresses = [each for each in texts_in(fields, "image_urls") if each.startswith("data:")]
    return media.from_address(addresses[0]) if len(addresses) == 1 else None
