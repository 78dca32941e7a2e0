"""Read files with only messages: objects with role and content, in a JSON document or one per line.

The document is a list of messages, or an object with a list `messages`. Messages have the form of
the chat APIs of OpenAI or Anthropic, and form one chain. Messages have no ids. A message is
identified by a digest of itself and of all earlier messages, so importing a longer version of a
file adds only its new messages. The session id is derived from the path of the file.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from perdure.codecs.content import answer_of, chat_call, parts_of, result_of
from perdure.codecs.fields import Fields, fields_of, list_in, name_in, object_in, text_in, time_in
from perdure.codecs.lines import Line, lines_of, pieces_at, read_line
from perdure.codecs.media import Media, unknown_part
from perdure.interop.formats.claude_code.messages import known_part
from perdure.interop.formats.items import ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.parse_state import Progress, Record, SourceDraft
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, Part, TextPart, ToolResultPart

FORMAT: Final = "messages"

_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})
_WORD = r"(?:%s)" % "|".join(sorted(_ROLES))  # noqa: UP031 - braces are common in patterns
_FIELD = r'(?:\s*"\w{1,40}"\s*:\s*"[^"\\]{0,200}"\s*,){0,8}'
_BEGINNING = re.compile(
    rf'\s*(?:\{{{_FIELD}\s*"messages"\s*:\s*)?\[\s*\{{\s*"(?:role"\s*:\s*"{_WORD}"|content"\s*:)'.encode()
)
_NO_MESSAGE = "it is not a message with a role and a content"
_TEXTS = ("input_text", "output_text")
_OLD_CALL = "function_call"  # it has no id, and no result names it


class _Document(msgspec.Struct):
    messages: list[msgspec.Raw]
    id: str | None = None


_document = msgspec.json.Decoder(_Document | list[msgspec.Raw])


def is_beginning(start: bytes) -> bool:
    """Return whether `start` is the beginning of a document of messages."""
    return _BEGINNING.match(start) is not None


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a message; lines of other programs can have the same form."""
    return "type" not in fields and text_in(fields, "role") in _ROLES and _has_content(fields)


def parse(content: bytes, progress: Progress | None = None) -> ParsedSource:
    """Parse the messages in `content`; damaged messages are reported as malformed lines."""
    reader = _Reader(content)
    if is_beginning(content):
        reader.read_document()
    else:
        reader.read_lines()
    if progress is not None:
        progress(len(content), len(content))
    return reader.finish()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.draft = SourceDraft(FORMAT, Held(content))
        self._content = content
        self._leaf: int | None = None
        self._digest = b""  # of all messages so far
        self._id: str | None = None
        self.draft.count_lines()

    def read_document(self) -> None:
        """Read a document; a truncated or non-JSON document has only malformed lines."""
        try:
            document = _document.decode(self._content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            for line in lines_of(self._content):
                if not line.is_blank:
                    reason = f"it is in no JSON document of messages ({error})"
                    self.draft.report_malformed(line, reason)
            return
        if isinstance(document, _Document):
            self._id = document.id
            document = document.messages
        for line in pieces_at(self._content, document):
            self._take(line)
        self.draft.count_header_lines()

    def read_lines(self) -> None:
        """Read a message from each line."""
        for line in lines_of(self._content):
            if not line.is_blank:
                self._take(line)

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        return self.draft.finish(SourceHeader(session=self._id, is_saved_whole=True), self._leaf)

    def _take(self, line: Line) -> None:
        reading = read_line(line.content)
        fields = fields_of(reading.value) if reading.is_json else None
        bodies = [] if fields is None else _bodies_of(fields, self.draft.media)
        if fields is None or not bodies:
            self.draft.report_malformed(line, reading.failure or _NO_MESSAGE)
            return
        self._digest = hashlib.sha256(self._digest + line.content).digest()
        own = f"message:{self._digest.hex()[:24]}"
        record = Record(line, fields, own, at=time_in(fields, "timestamp"))
        self._leaf = self.draft.add_chain(record, bodies, self._leaf)


def _has_content(fields: Fields) -> bool:
    content = fields.get("content")
    return isinstance(content, str | list) or (
        content is None
        and (list_in(fields, "tool_calls") is not None or object_in(fields, _OLD_CALL) is not None)
    )


def _bodies_of(fields: Fields, media: Media) -> list[ItemBody]:
    """Convert a message to one or more bodies; tool results come first."""
    role, content = text_in(fields, "role"), fields.get("content")
    if role not in _ROLES or not _has_content(fields):
        return []
    parts = parts_of([] if content is None else content, media, _part) or ()
    if role == "tool":
        call_id = name_in(fields, "tool_call_id")
        if call_id is None:
            return []
        result = result_of(call_id, parts, is_error=False, name=name_in(fields, "name"))
        return [Message("tool", (result,))]
    if role == "assistant":
        calls = [chat_call(each) for each in list_in(fields, "tool_calls") or ()]
        if (old := object_in(fields, _OLD_CALL)) is not None:
            calls.append(unknown_part({_OLD_CALL: old}))
        return [answer_of((*parts, *calls))]
    results = tuple(part for part in parts if isinstance(part, ToolResultPart))
    said = tuple(part for part in parts if not isinstance(part, ToolResultPart))
    bodies: list[ItemBody] = [Message("tool", results)] if results else []
    if role == "user" and (said or not results):
        bodies.append(Message("user", said))
    elif role != "user":
        bodies.append(CustomMessage(f"{FORMAT}:{role}", said, is_displayed=False))
    return bodies


def _part(fields: Fields, media: Media) -> Part | None:
    kind = text_in(fields, "type")
    if kind in _TEXTS and (text := text_in(fields, "text")) is not None:
        return TextPart(text)
    if kind == "image_url":
        address = text_in(object_in(fields, "image_url") or {}, "url") or ""
        return media.from_address(address) if address.startswith("data:") else None
    return known_part(fields, media)
