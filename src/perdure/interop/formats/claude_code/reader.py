"""Read Claude Code transcripts.

The records of a transcript form a tree: ``parentUuid`` is the ``uuid`` of the parent. Records of
the conversation become entries of the tree; side chains become branches that do not contain the
leaf. All records outside the conversation (progress, snapshots, queue operations) become
``imported_record`` entries beside the tree. If a record outside the conversation has children, the
record's nearest ancestor in the conversation becomes the parent of these children. If nearly no
record names its parent (in a file written by hand), the file is read as one chain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.fields import (
    Fields,
    count_in,
    flag_in,
    name_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.lines import Line
from perdure.interop.formats.claude_code.answers import Answers
from perdure.interop.formats.claude_code.messages import (
    assistant_of,
    content_of,
    said_by_person,
    said_by_tools,
)
from perdure.interop.formats.handover import Handover, handover_in
from perdure.interop.formats.items import (
    Item,
    ItemBody,
    ParsedSource,
    SourceHeader,
    named_by_path,
)
from perdure.interop.formats.sources.parent_links import Leaf, Linker
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, Make, has_type, whole_parser
from perdure.session.kinds import Compaction, CompactionReason, Custom, CustomMessage
from perdure.session.messages import Message, Part, TextPart, ToolCallPart
from perdure.session.notes import ImportedRecord, SessionInfoChanged

FORMAT: Final = "claude-code"

TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Record types that contain a session title, lowest priority first, with the title's field."""

QUIET = frozenset(
    {
        *TITLES,
        *("system", "attachment", "progress", "file-history-snapshot", "queue-operation"),
        *("permission-mode", "mode", "last-prompt", "agent-name", "agent-color", "agent-setting"),
        *("tag", "pr-link", "worktree-state", "attribution-snapshot", "content-replacement"),
    }
)
"""Types of known records, which cause no warning even if they add nothing to the conversation."""

_SAID = ("user", "assistant")
_NOTHING = Message("user", ())
_REASONS: dict[str, CompactionReason] = {"manual": "manual", "auto": "threshold"}
_METADATA = {"version": "version", "gitBranch": "git_branch", "slug": "slug", "agentId": "agent"}
_NAMED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN_ID = re.compile(rb'"uuid":\s*"([\w.-]+)"')
_PARENT_ID = re.compile(rb'"parentUuid":\s*(?:null|"([\w.-]+)")')
_IS_SIDECHAIN = re.compile(rb'"isSidechain":\s*true')

_MESSAGE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


class _About:
    """Facts that the records state about the session itself."""

    def __init__(self) -> None:
        self.sessions: dict[str, None] = {}
        self.created_at: int | None = None
        self.cwd: str | None = None
        self.metadata: dict[str, object] = {}
        self.has_main_chain = False
        self._handover: Handover | None = None
        self._missing = list(_METADATA)

    def take(self, fields: Fields, at: int | None) -> None:
        """Record the facts in `fields` that no earlier record has stated."""
        session = name_in(fields, "sessionId")
        if session is not None and session not in self.sessions:
            self.sessions[session] = None
        if self.created_at is None:
            self.created_at = at
        if self.cwd is None:
            self.cwd = name_in(fields, "cwd")
        if self._handover is None:
            self._handover = handover_in(fields)
        for key in self._missing:
            if key in fields and (value := name_in(fields, key)) is not None:
                self.metadata[_METADATA[key]] = value
                self._missing = [each for each in self._missing if each != key]

    def header(self) -> SourceHeader:
        """Return the source's header. The session id is the first id that a record names.

        A file that contains only the side chain of an agent becomes a separate session.
        """
        session = next(iter(self.sessions), None)
        agent = self.metadata.get("agent")
        header = SourceHeader(session, self.created_at, self.cwd, self.metadata)
        if self._handover is not None and str(self._handover.id) == session:
            return msgspec.structs.replace(header, handover=self._handover)
        if session is None or not isinstance(agent, str) or self.has_main_chain:
            return header
        own = agent_session(session, agent)
        return msgspec.structs.replace(header, session=own, parent=session, is_subagent=True)


def agent_session(session: str, agent: str) -> str:
    """Return the id of the separate session of `agent`, which `session` started as a subagent."""
    return f"{session}:agent-{agent}"


class Reader(LineReader):
    """Reads a transcript and adds its items to `draft`.

    If `is_chain` is True, each record becomes a child of the previous record.
    """

    foreign = "it is not a record of a Claude Code transcript"
    accepts = staticmethod(has_type)

    def __init__(self, draft: SourceDraft, *, is_chain: bool = False) -> None:
        super().__init__(draft)
        self.links = self.linker = Linker(draft, self._place)
        self.answers = Answers()
        self.boundary: Fields = {}  # the newest compact boundary's data about its summary
        # Item that may name the session -> its type, and for a summary its subject.
        self.titles: dict[int, tuple[str, str | None]] = {}
        self.usage_at: dict[str, int] = {}  # answer -> the item with its usage
        self.roots = 0
        self._about = _About()
        self._is_chain = is_chain
        self._leaves = {False: self.leaf, True: Leaf()}  # by "is a side chain"

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        record.id, record.parent = name_in(fields, "uuid"), name_in(fields, "parentUuid")
        record.at = time_in(fields, "timestamp")
        self._about.take(fields, record.at)
        self._link(record)

    def take_plain(self, fields: Fields, number: int, offset: int, length: int) -> bool:
        """Fast path: add a plain text record whose parent was read; return False for others."""
        own, parent = fields.get("uuid"), fields.get("parentUuid")
        if type(own) is not str or not own or type(parent) is not str or not parent:
            return False
        message = object_in(fields, "message")
        if message is None or self._is_chain or not self.links.is_plain(own, parent):
            return False
        kind = fields.get("type")
        if kind not in _SAID or "isCompactSummary" in fields:
            return False
        parts = content_of(message, self.draft.media)
        if parts is None or (kind == "user" and said_by_tools(parts)):
            return False
        hung_on = self.answers.end_at(self.links.below(parent))
        at = time_in(fields, "timestamp")
        item = Item(_NOTHING, number, offset, length, 0, hung_on, None, at, own)
        if kind == "user":
            item.body = _to_body(fields, parts)
            node = self.draft.put(item)
        else:
            node = _answer(self, item, fields, parts)
        self._about.take(fields, at)
        self.links.nodes[own] = node
        self._follow(fields, number, node, hung_on)
        self.links.has_gap = False
        return True

    def take_broken(self, line: Line, problem: str) -> None:
        """Read a line that is not JSON."""
        self.draft.report_malformed(line, problem)
        own, parents = _OWN_ID.findall(line.content), _PARENT_ID.findall(line.content)
        if len(own) != 1 or len(parents) != 1 or not line.is_ended:
            self.links.has_gap = True
            return
        parent = parents[0].decode() or None
        fields: Fields = {"isSidechain": _IS_SIDECHAIN.search(line.content) is not None}
        self._link(Record(line, fields, own[0].decode(), parent))

    def _link(self, record: Record) -> None:
        fields = record.fields
        leaf = self._leaves[fields.get("isSidechain") is True].node
        is_boundary = _is_boundary(fields)
        if is_boundary:
            record.parent = record.parent or name_in(fields, "logicalParentUuid")
        if self.links.has_gap or is_boundary:
            record.fallback = leaf
        is_lost = self._is_chain and record.parent not in self.links.nodes
        follows = record.parent is None and (
            is_boundary or self._is_chain or flag_in(fields, "isCompactSummary")
        )
        if record.id is None or is_lost or follows:
            self.links.add_below(record, leaf)
        else:
            self.links.add(record)
        self.links.has_gap = self.links.has_gap and not record.is_placed

    @property
    def instead(self) -> Make | None:
        """Return a reader for a file that must be read as one chain; None for other files.

        A file is one chain if nearly no record names its parent.
        """
        is_unlinked = self.roots > max(1, self.links.links)
        return partial(Reader, is_chain=True) if is_unlinked and not self._is_chain else None

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        if self._is_chain:
            text = "most records name no parent; they are read as one chain"
            self.draft.warn("chain", text)
        self._name_session()
        header = self._about.header()
        others = len(self._about.sessions) - 1
        if others > 0:
            told = "1 other session" if others == 1 else f"{others} other sessions"
            self.draft.warn("sessions", f"it also holds lines of {told}")
        main, side = self._leaves[False].node, self._leaves[True].node
        return self.draft.finish(header, side if main is None else main)

    def _name_session(self) -> None:
        """Set the session's title to the title with the highest priority.

        If several titles have the highest priority, the last of them wins.
        """
        named = [
            (item, list(TITLES).index(kind))
            for item, (kind, leaf) in self.titles.items()
            if kind != "summary" or leaf in self.links.nodes  # else it belongs to another session
        ]
        strongest = max((strength for _, strength in named), default=-1)
        for item, strength in named:
            if strength == strongest:
                self.draft.items.choose(item)

    # -- placing

    def _place(self, record: Record, parent: int | None) -> int | None:
        hung_on = self.answers.end_at(parent)
        kind = name_in(record.fields, "type")
        make = _opaque if kind is None else _RECORDS.get(kind, _quiet)
        node = make(self, record, hung_on)
        if node is None or node == hung_on:
            return hung_on
        self._follow(record.fields, record.line.number, node, hung_on)
        return node

    def _follow(self, fields: Fields, number: int, node: int, hung_on: int | None) -> None:
        """Make the item `node` the current end (leaf); it was read from the line `number`."""
        is_side = fields.get("isSidechain") is True
        self._leaves[is_side].follow_line(number, node)
        if not is_side:
            self._about.has_main_chain = True
        if hung_on is None:
            self.roots += 1

    def add_message(self, record: Record, hung_on: int | None) -> tuple[Part, ...] | int:
        """Return the parts of a record's message.

        If the message has no content, store it as extension data and return the position of the new
        item.
        """
        message = object_in(record.fields, "message")
        parts = None if message is None else content_of(message, self.draft.media)
        if parts is not None:
            return parts
        self.draft.report_malformed(record.line, "its message has no content")
        body = Custom("claude-code:message", record.fields.get("message"))
        return self.draft.add(record, body, hung_on)


parse = whole_parser(FORMAT, Reader)


# -- records; each function returns the parent for the record's children


def _opaque(reader: Reader, record: Record, hung_on: int | None) -> int:
    return reader.draft.add(record, record.line.content, hung_on)


def _quiet(reader: Reader, record: Record, hung_on: int | None) -> int | None:
    kind: str = record.fields["type"]
    if kind not in QUIET:
        text = f"line {record.line.number}: {kind!r} is stored without effect"
        reader.draft.warn("unknown", text)
    title = name_in(record.fields, TITLES[kind]) if kind in TITLES else None
    named = None if title is None else SessionInfoChanged(title=title)
    item = reader.draft.add(record, ImportedRecord(FORMAT, kind), hung_on, otherwise=named)
    if named is not None:
        reader.titles[item] = (kind, name_in(record.fields, "leafUuid"))
    return hung_on


def _system(reader: Reader, record: Record, hung_on: int | None) -> int | None:
    if _is_boundary(record.fields):
        reader.boundary = object_in(record.fields, "compactMetadata") or {}
    return _quiet(reader, record, hung_on)


def _assistant(reader: Reader, record: Record, hung_on: int | None) -> int:
    parts = reader.add_message(record, hung_on)
    if isinstance(parts, int):
        return parts
    line = record.line
    place = (line.number, line.offset, len(line.content))
    item = Item(_NOTHING, *place, 0, hung_on, None, record.at, record.id)
    return _answer(reader, item, record.fields, parts)


def _answer(reader: Reader, item: Item, fields: Fields, parts: tuple[Part, ...]) -> int:
    """Fill `item` with the answer in `fields`, add it to the draft, and return its position."""
    message = object_in(fields, "message") or {}
    answer = assistant_of(fields, message, parts)
    answer_id = name_in(message, "id") or name_in(fields, "requestId")
    item.body = answer
    if answer_id is not None and answer.usage is not None:
        item.group = answer_id
    own = reader.draft.put(item)
    calls = [part.id for part in parts if isinstance(part, ToolCallPart)]
    reader.answers.add_block(own, item.parent, answer_id, calls)
    if item.group is not None:
        _count_usage_once(reader, own, item.group)
    return own


def _count_usage_once(reader: Reader, item: int, answer_id: str) -> None:
    """Store the usage of an answer only at its newest block.

    Every block reports the usage of the whole answer.
    """
    former = reader.usage_at.get(answer_id)
    if former is not None:
        reader.draft.items.set_usage(former, None)
    reader.usage_at[answer_id] = item


def _user(reader: Reader, record: Record, hung_on: int | None) -> int:
    parts = reader.add_message(record, hung_on)
    if isinstance(parts, int):
        return parts
    if flag_in(record.fields, "isCompactSummary"):
        return _compaction(reader, record, hung_on, parts)
    results = said_by_tools(parts)
    if not results:
        return reader.draft.add(record, _to_body(record.fields, parts), hung_on)
    meta = _started_agent(record.fields)
    item = reader.draft.add(record, Message("tool", results), hung_on, meta=meta)
    reader.answers.add_results(item, hung_on, [result.call_id for result in results])
    rest = said_by_person(parts)
    if rest:
        return reader.draft.add(record, _to_body(record.fields, rest), item, ordinal=1)
    return item


def _started_agent(fields: Fields) -> Fields | None:
    """Return metadata with the session of the subagent that returned this tool result.

    Return None if no subagent with its own session returned the result.
    """
    session = name_in(fields, "sessionId")
    agent = name_in(object_in(fields, "toolUseResult") or {}, "agentId")
    if session is None or agent is None:
        return None
    return {"subagent": agent_session(session, agent)}


def _to_body(fields: Fields, parts: tuple[Part, ...]) -> ItemBody:
    if flag_in(fields, "isMeta"):
        return CustomMessage("claude-code:meta", parts, is_displayed=False)
    return Message("user", parts)


def _compaction(
    reader: Reader, record: Record, hung_on: int | None, parts: tuple[Part, ...]
) -> int:
    boundary, reader.boundary = reader.boundary, {}
    kept = object_in(boundary, "preservedSegment") or {}
    first = _own_item(reader, name_in(kept, "headUuid"))
    body = Compaction(
        summary="\n\n".join(part.text for part in parts if isinstance(part, TextPart)),
        tokens_before=count_in(boundary, "preTokens") or None,
        reason=_REASONS.get(text_in(boundary, "trigger") or "", "import"),
    )
    item = reader.draft.add(record, body, hung_on, {"first_kept": first})
    last = _own_item(reader, name_in(kept, "tailUuid"))
    if last is not None:  # the conversation continues from the last message kept
        reader.answers.replace(last, item)
    return item


def _own_item(reader: Reader, foreign_id: str | None) -> int | None:
    node = reader.links.nodes.get(foreign_id) if foreign_id is not None else None
    is_own = node is not None and reader.draft.items[node].alias == foreign_id
    return node if is_own else None


def _attachment(reader: Reader, record: Record, hung_on: int | None) -> int | None:
    """Add the text that a person typed while the model worked; no other record contains it."""
    attached = object_in(record.fields, "attachment") or {}
    parts: tuple[Part, ...] | None = None
    if text_in(attached, "type") == "queued_command":
        parts = content_of({"content": attached.get("prompt")}, reader.draft.media)
    if parts is None:
        return _quiet(reader, record, hung_on)
    is_typed = (text_in(attached, "commandMode") or "prompt") == "prompt"
    return reader.draft.add(record, _to_body({"isMeta": not is_typed}, parts), hung_on)


def _is_boundary(fields: Fields) -> bool:
    return fields.get("type") == "system" and fields.get("subtype") == "compact_boundary"


_RECORDS: dict[str, Callable[[Reader, Record, int | None], int | None]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
    "attachment": _attachment,
}


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header`; if it has no session id, set the id that the path contains.

    Claude Code names a file after its session.
    """
    if header.session is None and _NAMED.fullmatch(path.stem):
        return msgspec.structs.replace(header, session=path.stem)
    return named_by_path(header, path)


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a record of Claude Code."""
    kind = name_in(fields, "type")
    if kind is None:
        return False
    if "sessionId" in fields and ("uuid" in fields or "parentUuid" in fields or kind in QUIET):
        return True
    if kind == "file-history-snapshot":
        return object_in(fields, "snapshot") is not None
    if kind in _MESSAGE_TYPES and ("uuid" in fields or "parentUuid" in fields):
        return True
    if kind in _SAID:  # a thin line
        message = object_in(fields, "message") or {}
        return message.get("role") == kind and "content" in message
    return kind == "summary" and "leafUuid" in fields
