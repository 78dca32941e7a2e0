"""Files of other programs, and of perdure itself, into a store.

A source becomes one session in one commit: its bytes as a blob, an ``import_source`` entry, and
entries for all its lines. The same file again adds nothing; a file that grew, or was rewritten,
adds what is new, below the parents it names, and leaves the session's leaf where perdure moved it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from perdure.errors import (
    FormatError,
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    SessionExists,
    SessionNotFound,
    TurnOpen,
)
from perdure.interop.formats import native, recognise
from perdure.interop.formats.claude_code import reading as claude_code
from perdure.interop.formats.codex import reading as codex
from perdure.interop.formats.draft import Progress
from perdure.interop.formats.fields import fields_of
from perdure.interop.formats.items import (
    IMPORT,
    Bound,
    Item,
    ParsedSource,
    bound,
    source_of,
    with_source,
)
from perdure.interop.formats.lines import lines_of
from perdure.interop.formats.opencode import reading as opencode
from perdure.interop.formats.operator import reading as operator
from perdure.interop.formats.operator import records as operator_records
from perdure.interop.formats.pi import ids as pi_ids
from perdure.interop.formats.pi import reading as pi
from perdure.interop.identities import foreign_ids, seen_entries
from perdure.interop.originals import (
    Original,
    Relation,
    known_items,
    originals_of,
    relation_of,
)
from perdure.interop.placing import session_ids
from perdure.interop.reports import ImportReport, about
from perdure.interop.restoring import restore
from perdure.session.clock import Clock, RandomSource
from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE, Message
from perdure.session.notes import ImportSource, LeafMoved, Source
from perdure.stores.chain import blob_hash
from perdure.stores.protocol import EMPTY, Commit, SessionStore, StreamState, Write

FormatName = Literal["auto", "perdure", "pi", "claude-code", "operator", "codex", "opencode"]

PARSERS: Mapping[str, Callable[[bytes, Progress | None], ParsedSource]] = {
    pi.FORMAT: pi.parse,
    claude_code.FORMAT: claude_code.parse,
    operator_records.FORMAT: operator.parse,
    codex.FORMAT: codex.parse,
    opencode.FORMAT: opencode.parse,
}
"""Format -> what reads a file of it, but for our own (``formats.native``)."""

_NO_SESSION = "it is no session of perdure, pi, Operator, Claude Code, Codex or opencode"
_ATTEMPTS = 10  # each failed one means that another import, or a turn, got its commit in between
_WRITTEN_HERE = (pi.FORMAT, operator_records.FORMAT)
"""Formats in which sessions of ours are written, with ids made of ours."""


async def import_source(
    store: SessionStore,
    source: bytes | str | Path,
    *,
    clock: Clock,
    random: RandomSource,
    format: FormatName = "auto",
    name: str | None = None,
    subject: str | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Read `source`, a file or its content, into `store`.

    `name` is what it is called in the log, by default the file's name. `subject` says whom a new
    session is about; one that is here already keeps its own. `progress` is told bytes read and
    bytes in all, from another thread.
    Durable: all of it or nothing, as one commit; sessions of perdure's own with turns take two.
    Raises: FormatError when it cannot be read or is in no known format; TurnOpen when its session
    is in the middle of a turn; what ``SessionStore.commit`` raises.
    """
    content, own_name = await _content(source)
    name = name or own_name
    known = recognise.recognised(content) if format == "auto" else format
    if known is None:
        raise FormatError(name, _NO_SESSION)
    if known == native.FORMAT:
        bundle = await asyncio.to_thread(native.parse, content, name)
        try:
            return await restore(store, bundle, subject=subject, clock=clock, random=random)
        except (InvalidEntry, InvalidParent) as error:
            raise FormatError(name, f"it is no log: {error}") from error
    try:
        parsed = await asyncio.to_thread(PARSERS[known], content, progress)
    except (RecursionError, MemoryError) as error:
        raise FormatError(name, f"reading it takes too much ({type(error).__name__})") from error
    if not parsed.items and not parsed.header_lines:
        raise FormatError(name, f"no line of it is a record of {known}")
    return await _import_parsed(store, _File(name, content, parsed, subject), clock)


async def _content(source: bytes | str | Path) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "source"
    path = Path(source)
    try:
        return await asyncio.to_thread(path.read_bytes), path.name
    except OSError as error:
        raise FormatError(str(path), f"it cannot be read ({error.strerror})") from error


class _File(msgspec.Struct, frozen=True):
    name: str
    content: bytes
    parsed: ParsedSource
    subject: str | None

    def first_line(self) -> bytes:
        return next((line.content for line in lines_of(self.content) if not line.is_blank), b"")


async def _import_parsed(store: SessionStore, file: _File, clock: Clock) -> ImportReport:
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _import_once(store, file, clock)
        except (SessionExists, HeadConflict):
            continue  # somebody wrote in between: look again
    return await _import_once(store, file, clock)


async def _import_once(store: SessionStore, file: _File, clock: Clock) -> ImportReport:
    parsed = file.parsed
    passed: list[StreamId] = []
    for stream in session_ids(parsed.format, parsed.header.session, file.first_line()):
        try:
            state = await store.state(stream)
        except SessionNotFound:
            return await _create(store, file, stream, passed, clock)
        report = await _update(store, file, state, clock)
        if report is not None:
            return about(report, file.subject, state.header)
        passed.append(stream)
    raise AssertionError("session_ids never ends")


def _is_of(header: StreamHeader, parsed: ParsedSource) -> bool:
    """Whether the session with `header` was made of a source of this format and session."""
    described = fields_of((header.metadata or {}).get(IMPORT)) or {}
    return (
        header.fork is None
        and described.get("format") == parsed.format
        and described.get("session") == parsed.header.session
    )


# -- a new session


async def _create(
    store: SessionStore, file: _File, stream: StreamId, passed: list[StreamId], clock: Clock
) -> ImportReport:
    parsed, now = file.parsed, clock.now_ms()
    first_at = next((item.at for item in parsed.items if item.at is not None), now)
    created_at = parsed.header.created_at
    header = StreamHeader(
        id=stream,
        created_at=first_at if created_at is None else created_at,
        origin="subagent" if parsed.header.is_subagent else "import",
        cwd=parsed.header.cwd,
        parent=_parent_of(parsed),
        subject=file.subject,
        metadata={
            IMPORT: {
                **parsed.header.metadata,
                "format": parsed.format,
                "session": parsed.header.session,
            }
        },
    )
    addition = _Addition(file, stream, EMPTY, {}, offset=0)
    entries = addition.entries(addition.leaf)
    await store.commit(
        Commit(
            writes=(Write(stream=stream, create=header, entries=entries),),
            at=now,
            blobs=addition.blobs,
        )
    )
    warning = f"session {passed[0]} is something else; this one became {stream}" if passed else None
    return addition.report(warning, is_new=True)


def _parent_of(parsed: ParsedSource) -> StreamId | None:
    """The session that `parsed` was begun from, under the id it has when it is imported."""
    parent = parsed.header.parent
    return None if parent is None else next(session_ids(parsed.format, parent, b""))


# -- a session that was imported before


async def _update(
    store: SessionStore, file: _File, state: StreamState, clock: Clock
) -> ImportReport | None:
    """Add what is new in `file`; None when the session at `state` is another one after all."""
    stream, parsed = state.header.id, file.parsed
    is_of = _is_of(state.header, parsed)
    originals = originals_of(await store.notes(stream, (ImportSource.kind,)))
    relation = Relation.OTHER
    for original in originals:
        relation = await _settled(store, file.content, original)
        if relation in (Relation.SAME, Relation.OLDER):
            return _nothing_new(stream, parsed.format, relation)
    has_grown = relation is Relation.GROWN
    seen = await seen_entries(store, stream)
    ids = await foreign_ids(store, seen) if is_of or state.header.fork else {}
    if parsed.format in _WRITTEN_HERE:
        ids = {**pi_ids.written_ids(seen), **ids}
    parts = originals[-1].seqs if has_grown else frozenset[int]()
    known = known_items(parsed.items, seen, ids, parts) if ids or has_grown or is_of else {}
    if not known and not has_grown:
        return None
    if state.open_turn is not None:
        raise TurnOpen(stream, state.open_turn)
    offset = originals[-1].byte_length if has_grown else 0
    addition = _Addition(file, stream, state.head, known, offset)
    if addition.is_empty and (has_grown or not is_of):
        return _nothing_new(stream, parsed.format, Relation.SAME)
    leaf = addition.leaf if _may_advance(seen, parsed, known) else state.leaf
    write = Write(
        stream=stream,
        entries=addition.entries(leaf, before=state.leaf),
        expected_head=state.head,
    )
    await store.commit(Commit(writes=(write,), at=clock.now_ms(), blobs=addition.blobs))
    warning = None if has_grown else "the file was rewritten since it was imported"
    return addition.report(warning, is_new=False)


async def _settled(store: SessionStore, content: bytes, original: Original) -> Relation:
    """How `content` stands to `original`, for certain."""
    relation = relation_of(content, original)
    if relation is not Relation.OLDER:
        return relation
    last = next(p for p in original.parts if p.source.offset + p.source.length > len(content))
    kept = await store.blob(last.source.blob)
    return relation if kept.startswith(content[last.source.offset :]) else Relation.OTHER


def _nothing_new(stream: StreamId, format: str, relation: Relation) -> ImportReport:
    is_older = relation is Relation.OLDER
    warnings = ("more of this file was imported before; nothing was added",) if is_older else ()
    return ImportReport(stream, format, 0, 0, 0, (), warnings, is_new=False)


def _may_advance(seen: Sequence[Entry], parsed: ParsedSource, known: Mapping[int, EntryId]) -> bool:
    """Whether the leaf may follow the file: nothing of perdure's own moved it away from there.

    It stands where an import put it, or at an entry of our own that was exported and that the file
    went on from.
    """
    last = next((e for e in reversed(seen) if e.lane == "tree" or e.kind == LeafMoved.kind), None)
    if last is None or last.kind == OPAQUE or source_of(last.body) is not None:
        return True
    position = parsed.leaf
    while position is not None and known.get(position) != last.id:
        position = parsed.items[position].parent
    return last.lane == "tree" and position is not None


def _usage_counted_once(items: Sequence[Item], known: Mapping[int, EntryId]) -> Sequence[Item]:
    """`items`, new ones without usage where an older part of the same answer has it already."""
    counted = {items[position].group for position in known} - {None}
    if not counted:
        return items
    return [
        msgspec.structs.replace(item, body=msgspec.structs.replace(item.body, usage=None))
        if item.group in counted and position not in known and isinstance(item.body, Message)
        else item
        for position, item in enumerate(items)
    ]


class _Addition:
    """What of a file goes into a session whose head is `head`."""

    def __init__(
        self,
        file: _File,
        stream: StreamId,
        head: int,
        known: Mapping[int, EntryId],
        offset: int,
    ) -> None:
        self._file = file
        self._stream = stream
        self._part = head + 1
        self._offset = offset
        self._fresh = [n for n in range(len(file.parsed.items)) if n not in known]
        self._has_own = any(file.parsed.items[n].offset >= offset for n in known)
        items = _usage_counted_once(file.parsed.items, known)
        self._bound: Bound = bound(items, stream, self._part, known)
        self._first_line = file.content.count(b"\n", 0, offset) + 1
        self._malformed = tuple(
            line.number for line in file.parsed.malformed if line.number >= self._first_line
        )

    @property
    def is_empty(self) -> bool:
        """All that was added to the file are entries of the session's own, from an export."""
        return not self._fresh and not self._malformed and self._has_own

    @property
    def leaf(self) -> EntryId | None:
        """Where the file's conversation goes on from."""
        leaf = self._file.parsed.leaf
        return None if leaf is None else self._bound.ids[leaf]

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """The part of the file that is new, and the media."""
        return (self._file.content[self._offset :], *self._file.parsed.blobs)

    def entries(self, leaf: EntryId | None, before: EntryId | None = None) -> tuple[NewEntry, ...]:
        """The entries to append so that the leaf, now at `before`, is at `leaf` afterwards."""
        entries = (new_side(self._import_source()), *self._bound.entries)
        return entries if self._leaf_after(before) == leaf else (*entries, self._moving(leaf))

    def report(self, warning: str | None, *, is_new: bool) -> ImportReport:
        """What the import did."""
        items = self._file.parsed.items
        warnings = self._file.parsed.warnings
        return ImportReport(
            session=self._stream,
            format=self._file.parsed.format,
            entries=len(self._fresh),
            messages=sum(items[n].kind == MESSAGE for n in self._fresh),
            skipped=len(self._malformed),
            malformed=self._malformed,
            warnings=warnings if warning is None else (warning, *warnings),
            is_new=is_new,
        )

    def _import_source(self) -> ImportSource:
        part = self._file.content[self._offset :]
        return ImportSource(
            format=self._file.parsed.format,
            name=self._file.name,
            blob=blob_hash(part),
            offset=self._offset,
            length=len(part),
            first_line=self._first_line,
            lines=max(0, self._file.parsed.lines - self._first_line + 1),
            malformed=self._malformed,
            file_session=self._file.parsed.header.session,
        )

    def _leaf_after(self, before: EntryId | None) -> EntryId | None:
        leaf = before
        for position in self._fresh:
            item = self._file.parsed.items[position]
            if item.lane == "tree":
                leaf = self._bound.ids[position]
            elif item.kind == LeafMoved.kind:
                target = (item.references or {}).get("target")
                leaf = None if target is None else self._bound.ids[target]
        return leaf

    def _moving(self, leaf: EntryId | None) -> NewEntry:
        moved = new_side(LeafMoved(leaf))
        source = Source(self._part, len(self._file.content), 0)
        return msgspec.structs.replace(moved, body=with_source(moved.body, source))
