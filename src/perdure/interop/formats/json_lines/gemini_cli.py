"""Read the sessions of Gemini CLI: ``chats/session-*.jsonl``, one record per line.

Gemini CLI writes a message again, under the same id, when the calls of the message have ended. The
import adds the new calls and results after the parts that are already imported. A message whose
text changed begins a branch. A record ``$rewindTo`` moves the leaf (the end of the conversation) to
before a message. A record ``$set`` contains a new list of messages. The import of ``$set`` moves
the leaf to the point where the new list differs from the current messages.
Source: Gemini CLI 0.61, which wrote the fixture, and its published package.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

import msgspec

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
from perdure.codecs.media import Media, unknown_part
from perdure.interop.formats.items import ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.codec import encode
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, Part, TextPart, ThinkingPart, ToolResultPart, Usage
from perdure.session.notes import ImportedRecord, LeafMoved, SessionInfoChanged

FORMAT: Final = "gemini-cli"
PROVIDER = "google"

_INJECTED = ("<session_context>", "<state_snapshot>", "<hook_context>")
"""Prefixes of user messages that Gemini CLI writes itself."""

_CWD = re.compile(r"\*\*Workspace Directories:\*\*\s*\n\s*- (.+)")
_METADATA = ("projectHash", "kind")


class _Told(msgspec.Struct):
    """The state of a message: digest of its text, ids of its calls, ids of the calls with a result.

    `at` is the index of the message in the chain. `before` is the leaf (the end of the
    conversation) before the message was added.
    """

    id: str
    at: int
    before: int | None
    digest: bytes
    calls: set[str]
    results: set[str]


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is the header of a session."""
    return name_in(fields, "sessionId") is not None and name_in(fields, "projectHash") is not None


class Reader(LineReader):
    """Reads a session and adds its items to `draft`."""

    foreign = "it is not a record of a session of Gemini CLI"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._cwd: str | None = None
        self._told: dict[str, _Told] = {}
        self._chain: list[_Told] = []  # the messages of the current branch
        self._answered: set[str] = set()  # calls with a result
        self._ordinal = 0  # of the next item of the line

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        self._ordinal = 0
        record.at = time_in(fields, "timestamp")
        rewound = name_in(fields, "$rewindTo")
        changes = object_in(fields, "$set")
        if rewound is not None:
            self._rewind(record, rewound)
        elif name_in(fields, "id") is not None:
            self._take_message(record, fields)
        elif changes is not None:
            self._set(record, changes)
        elif is_record(fields):
            self._take_header(record)
        else:
            self.draft.report_malformed(record.line, self.foreign)

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        header = self.header
        if header is not None:
            header = msgspec.structs.replace(header, cwd=self._cwd)
        return self.draft.finish(header, self.leaf.node, self._cwd)

    # -- records about the session

    def _take_header(self, record: Record) -> None:
        fields = record.fields
        if self.header is None:
            self.draft.at = time_in(fields, "startTime")
            self.draft.header_lines.append(record.line.number)
            self.header = SourceHeader(
                session=name_in(fields, "sessionId"),
                created_at=self.draft.at,
                metadata={name: fields[name] for name in _METADATA if fields.get(name) is not None},
                is_subagent=text_in(fields, "kind") == "subagent",
            )
        else:
            self._note(record, "header")
        self._replace(record, fields)

    def _set(self, record: Record, changes: Fields) -> None:
        title = (text_in(changes, "summary") or "").strip()
        if title:
            self._add(record, SessionInfoChanged(title=title))
        self._replace(record, changes)
        if not self._ordinal:
            self._note(record, "$set")

    def _rewind(self, record: Record, message: str) -> None:
        told = self._on_chain(message)
        at = 0 if told is None else told.at
        before = self.leaf.node
        self.leaf.node = self._start_of(at)
        del self._chain[at:]
        self.draft.add(record, LeafMoved(None), before, {"target": self.leaf.node})

    def _replace(self, record: Record, fields: Fields) -> None:
        """Replace the chain's messages by those in `fields`, from the first difference on."""
        found = [fields_of(each) or {} for each in list_in(fields, "messages") or ()]
        if "messages" not in fields:
            return
        ids = [name_in(each, "id") for each in found]
        same = 0
        while same < min(len(ids), len(self._chain)) and ids[same] == self._chain[same].id:
            same += 1
        if same < len(self._chain):
            self.leaf.node = self._start_of(same)
            del self._chain[same:]
        for each in found[same:]:
            self._take_message(record, each, is_moved=True)

    def _start_of(self, at: int) -> int | None:
        """Return the parent item of the message at index `at` of the chain."""
        return self._chain[at].before if at < len(self._chain) else self.leaf.node

    def _on_chain(self, message: str) -> _Told | None:
        """Return the state of the message if the message is on the current branch."""
        told = self._told.get(message)
        if told is None or told.at >= len(self._chain):
            return None
        return told if self._chain[told.at] is told else None

    # -- messages

    def _take_message(self, record: Record, fields: Fields, *, is_moved: bool = False) -> None:
        """Read a message.

        If `is_moved` is True, add the message as new even if a message with the same id exists.
        """
        own = name_in(fields, "id") or f"{record.line.number}:{self._ordinal}"
        kind = text_in(fields, "type")
        if kind not in ("user", "gemini"):
            self._note(record, f"message:{kind}")
            return
        words = encode([kind, fields.get("content"), fields.get("thoughts")])
        digest = hashlib.sha256(words).digest()
        told = None if is_moved else self._on_chain(own)
        is_new = told is None or told.digest != digest
        if told is None or is_new:
            if told is not None:
                self.leaf.node = told.before
                del self._chain[told.at :]
            record.id = None if own in self._told else own
            told = self._told[own] = _Told(
                own, len(self._chain), self.leaf.node, digest, set(), set()
            )
            self._chain.append(told)
        before = self._ordinal
        if kind == "gemini":
            bodies = self._gemini(fields, told, is_new=is_new)
        else:
            bodies = self._user(fields) if is_new else iter(())
        for body in bodies:
            self._add(record, body)
        if self._ordinal == before:
            self._note(record, f"message:{kind}")

    def _user(self, fields: Fields) -> Iterator[ItemBody]:
        content = parts_of(fields.get("content"), self.draft.media, part_of) or ()
        results = tuple(part for part in content if isinstance(part, ToolResultPart))
        said = tuple(part for part in content if not isinstance(part, ToolResultPart))
        fresh = tuple(part for part in results if part.call_id not in self._answered)
        if fresh:
            self._answered |= {part.call_id for part in fresh}
            yield Message("tool", fresh)
        if not said:
            return
        text = next((part.text for part in said if isinstance(part, TextPart)), "")
        if text.lstrip().startswith(_INJECTED):
            found = _CWD.search(text)
            self._cwd = self._cwd or (None if found is None else found[1].strip())
            yield CustomMessage(f"{FORMAT}:context", said, is_displayed=False)
        else:
            yield Message("user", said)

    def _gemini(self, fields: Fields, told: _Told, *, is_new: bool) -> Iterator[ItemBody]:
        """Yield the parts and tool results of an answer that are new compared to `told`."""
        media = self.draft.media
        said: list[Part] = []
        usage = None
        if is_new:
            thoughts = [fields_of(each) or {} for each in list_in(fields, "thoughts") or ()]
            text = "".join(map(_thought, thoughts))
            said += [ThinkingPart(text)] if text else []
            content = parts_of(fields.get("content"), media, part_of) or ()
            said += [part for part in content if not isinstance(part, TextPart) or part.text]
            usage = _usage(object_in(fields, "tokens") or {})
        fresh: list[ToolResultPart] = []
        for number, each in enumerate(list_in(fields, "toolCalls") or ()):
            call = fields_of(each) or {}
            call_id = name_in(call, "id") or f"{told.id}:{number}"
            answered = _answered_in(call)
            if answered is not None:
                self._answered |= {call_id, name_in(answered, "id") or call_id}
            part = call_of(call_id, name_in(call, "name"), object_in(call, "args"))
            if part is None:  # its result stays in it
                said += [unknown_part(each)] if is_new else []
                continue
            if call_id not in told.calls:
                told.calls.add(call_id)
                said.append(part)
            if answered is not None and call_id not in told.results:
                has_failed = text_in(call, "status") in ("error", "cancelled")
                fresh.append(response_of(call_id, answered, media, is_error=has_failed))
        if said:
            model = name_in(fields, "model")
            yield answer_of(said, provider=PROVIDER, model=model, usage=usage)
        if fresh:
            told.results |= {part.call_id for part in fresh}
            yield Message("tool", tuple(fresh))

    def _add(self, record: Record, body: ItemBody) -> None:
        is_said = isinstance(body, Message | CustomMessage)
        at = self.draft.add(
            record, body, self.leaf.node if is_said else None, ordinal=self._ordinal
        )
        self._ordinal += 1
        if is_said:
            self.leaf.node = at

    def _note(self, record: Record, kind: str) -> None:
        """Store `record` as a side entry."""
        self.draft.add(record, ImportedRecord(FORMAT, kind), self.leaf.node, ordinal=self._ordinal)
        self._ordinal += 1


parse = whole_parser(FORMAT, Reader)


# -- parts


def part_of(fields: Fields, media: Media) -> Part | None:
    """Convert a part in the form of Google's API; None for a tool call or an unknown type."""
    text = fields.get("text")
    if isinstance(text, str):
        return ThinkingPart(text) if fields.get("thought") is True else TextPart(text)
    data = object_in(fields, "inlineData")
    if data is not None:
        return media.part(text_in(data, "data"), name_in(data, "mimeType"))
    answered = object_in(fields, "functionResponse")
    call_id = None if answered is None else name_in(answered, "id")
    if answered is None or call_id is None:
        return None
    return response_of(call_id, answered, media, is_error=False)


def response_of(call_id: str, answered: Fields, media: Media, *, is_error: bool) -> ToolResultPart:
    """Convert a function response to the result of the tool call `call_id`."""
    response = object_in(answered, "response") or {}
    text = text_in(response, "output")
    failure = text_in(response, "error")
    if text is None:
        text = failure if failure is not None else encode(response).decode() if response else ""
    attached = parts_of(list_in(answered, "parts") or [], media, part_of) or ()
    return result_of(
        call_id,
        (TextPart(text), *attached),
        is_error=is_error or failure is not None,
        name=name_in(answered, "name"),
    )


def _answered_in(call: Fields) -> Fields | None:
    """Return the function response of a tool call; None if the call has not ended."""
    for each in list_in(call, "result") or ():
        answered = object_in(fields_of(each) or {}, "functionResponse")
        if answered is not None:
            return answered
    return None


def _thought(thought: Fields) -> str:
    subject, description = text_in(thought, "subject"), text_in(thought, "description") or ""
    return f"{subject}: {description}\n" if subject else description


def _usage(tokens: Fields) -> Usage:
    """Convert the token counts of a call to `Usage`.

    Gemini counts cached tokens as input, and excludes thoughts from output.
    """
    cached = count_in(tokens, "cached")
    return Usage(
        input_tokens=max(0, count_in(tokens, "input") - cached) + count_in(tokens, "tool"),
        output_tokens=count_in(tokens, "output") + count_in(tokens, "thoughts"),
        cache_read_tokens=cached,
    )
