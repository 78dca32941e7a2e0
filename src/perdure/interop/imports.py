"""Import files of other programs, and of perdure itself, into a store.

A source becomes one session. The session contains the bytes of the source as blobs,
``import_source`` entries that refer to the blobs, and entries for all lines of the source. A small
source becomes one commit; a larger source becomes several commits (``interop.append_items``). The
session is ``importing`` until the last commit. Importing the same file again adds nothing. If the
file grew, or its import was interrupted, the new items are added below the parents that they name.
If perdure moved the leaf (the end of the conversation), an import does not move the leaf. A file
that perdure wrote for another program is imported again by the same rules. A file that does not
begin with the content imported earlier becomes a separate session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NotRequired, TypedDict

import msgspec

from perdure.bounds.limits import require_within
from perdure.codecs.pi import words as pi_words
from perdure.errors import (
    FormatError,
    InvalidEntry,
    InvalidParent,
    SessionNotFound,
    TurnOpen,
    UnknownFormat,
)
from perdure.interop import matching, reports
from perdure.interop.aliases import Traces, foreign_ids, traces_of
from perdure.interop.append_items import Added, Base, ItemAppend, after_conflicts
from perdure.interop.facts import import_facts
from perdure.interop.formats import detection, native
from perdure.interop.formats.items import (
    IMPORT,
    Item,
    ParsedSource,
    described_source,
    is_of_source,
)
from perdure.interop.formats.logs import LogFile
from perdure.interop.formats.registry import FORMATS
from perdure.interop.formats.sources.content import Content, FileContent, Held, first_line, path_of
from perdure.interop.formats.sources.parse_state import Progress
from perdure.interop.formats.sources.reader import BOUNDS, Bounds, Source, read_source
from perdure.interop.matching import WRITTEN_HERE, own_file_of, session_ids
from perdure.interop.reports import Format, FormatName, ImportReport, about, still_erased
from perdure.interop.restore import restore
from perdure.interop.source_files import FileRelation, Original, originals_of, relation_of
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import ImportSource
from perdure.stores.protocol import EMPTY, StreamState
from perdure.stores.session_store import SessionStore, state_unless_erased

_TITLES = ", ".join(format.title for format in FORMATS.values())
_NO_SESSION = f"not a recognized session file (supported: perdure, {_TITLES})"


class ImportOptions(TypedDict):
    """How files are imported: the options of `import_source`."""

    clock: Clock
    random: RandomSource
    format: NotRequired[FormatName]
    subject: NotRequired[str | None]
    again: NotRequired[bool]


async def import_source(  # noqa: PLR0913 - each says how it is imported, most have a default
    store: SessionStore,
    source: bytes | str | Path | Content,
    *,
    clock: Clock,
    random: RandomSource,
    format: FormatName = "auto",
    name: str | None = None,
    subject: str | None = None,
    progress: Progress | None = None,
    bounds: Bounds = BOUNDS,
    again: bool = False,
) -> ImportReport:
    """Import `source` into `store`; `source` is a file or its content.

    `name` is the name of the source in the log, by default the file's name. `subject` is the person
    that a new session is about; an existing session keeps its own subject. `progress` is called in
    another thread with the bytes read and the total bytes. `bounds` limit the memory of the import.
    An erased session stays erased; if `again` is True, the import creates another session.
    Durable: everything is stored when the call returns. A small source becomes one commit. If the
    import of a larger source is interrupted by a crash, the session is marked as ``importing``.
    After an interrupted import, importing the same source again adds the missing entries. A session
    from a file of perdure's own format is incomplete after a crash. If the source has turns, a
    separate commit creates the session.
    Raises: FormatError if the source cannot be read or has no known format. Raises TurnOpen if the
    source's session has an open turn. Other errors are those of ``SessionStore.commit``.
    """
    with _open_source(source, name) as content:
        read = await asyncio.to_thread(_read_foreign, content, format, progress, bounds)
        if read is None:
            header, _ = await asyncio.to_thread(native.open_file, content)
            if header.kind == "memory":
                return await import_facts(store, content, subject=subject, clock=clock)
            log, piece_bytes = await asyncio.to_thread(_log_in, content, bounds)
            try:
                return await restore(
                    store,
                    log,
                    subject=subject,
                    clock=clock,
                    random=random,
                    piece_bytes=piece_bytes,
                    again=again,
                )
            except (InvalidEntry, InvalidParent) as error:
                raise FormatError(content.name, f"it is not a log: {error}") from error
        work = _Work(content.name, *read, subject, bounds.piece_bytes, Added(), again)
        return await _import_read(store, work, clock)


def _read_foreign(
    content: Content, format: FormatName, progress: Progress | None, bounds: Bounds
) -> tuple[Source, bytes] | None:
    """Read `content`, and return it with its first line; None if its format is perdure's own.

    Raises: FormatError or LimitExceeded.
    """
    known = _format_of(content, format)
    if known == native.FORMAT:
        return None
    source = source_of_format(content, known, progress, bounds)
    if not source.parsed.items and not source.parsed.header_lines:
        raise FormatError(content.name, f"no line of it is a record of {known}")
    return source, first_line(source.content)


def _format_of(content: Content, format: FormatName) -> Format:
    """Return the format of `content`; perdure's own format, if requested, is not checked.

    Raises: FormatError if the format is unknown, or if no line has the requested `format`.
    """
    if format == native.FORMAT or (format != "auto" and detection.has_line_of(content, format)):
        return format
    found = detection.detect_format(content)
    if found is None:
        advice = detection.packed_as(content)
        if advice is not None:
            raise FormatError(content.name, advice)
        raise UnknownFormat(content.name, _NO_SESSION if content.length else "the file is empty")
    if format not in ("auto", found):
        reason = f"no line of it is a record of {format}; it is a session of {found}"
        raise FormatError(content.name, reason)
    return found


@contextmanager
def _open_source(source: bytes | str | Path | Content, name: str | None) -> Generator[Content]:
    if isinstance(source, bytes):
        yield Held(source, name or "source")
    elif isinstance(source, str | Path):
        with FileContent(Path(source), name) as content:
            yield content
    else:
        yield source


def source_of_format(
    content: Content, format: Format, progress: Progress | None = None, bounds: Bounds = BOUNDS
) -> Source:
    """Read `content` as a file of `format`.

    Raises: FormatError or LimitExceeded if reading `content` needs too many resources.
    """
    try:
        known = FORMATS[format]
        if known.reader is not None:
            source = read_source(content, format, known.reader, progress, bounds)
        else:
            require_within("import_file_bytes", content.length, content.name)
            whole = Held(content.read(0, content.length), content.name)
            source = Source(whole, known.parse(whole.content, progress))
        path = path_of(content)
        if known.at_path is None or path is None:
            return source
        header = known.at_path(source.parsed.header, path)
        return msgspec.structs.replace(
            source, parsed=msgspec.structs.replace(source.parsed, header=header)
        )
    except (RecursionError, MemoryError) as error:
        reason = f"reading it takes too much ({type(error).__name__})"
        raise FormatError(content.name, reason) from error


def _log_in(content: Content, bounds: Bounds) -> tuple[LogFile, int]:
    """Return the log in `content`, and how many bytes of the log become one commit. Blocks."""
    if content.length > bounds.whole_bytes:
        return LogFile(content), bounds.piece_bytes
    held = Held(content.read(0, content.length), content.name)
    return LogFile(held), max(1, held.length)


class _Work(msgspec.Struct, frozen=True):
    """The import of one source into a store. `added` counts the additions of all attempts.

    If perdure wrote the beginning of the source, `origin` is the session that the source continues.
    """

    name: str
    source: Source
    first_line: bytes
    subject: str | None
    piece_bytes: int
    added: Added
    again: bool
    origin: StreamId | None = None


async def _import_read(store: SessionStore, work: _Work, clock: Clock) -> ImportReport:
    pieces = work.source.content.length // work.piece_bytes
    return await after_conflicts(lambda: _import_once(store, work, clock), pieces)


async def _import_once(store: SessionStore, work: _Work, clock: Clock) -> ImportReport:
    parsed = work.source.parsed
    other: StreamId | None = None  # the first session that has an id of the file, and is not it
    erased: reports.Lost | None = None
    for stream in session_ids(parsed.format, parsed.header.session, work.first_line):
        try:
            state = await state_unless_erased(store, stream)
        except SessionNotFound:
            if erased is not None and not work.again:
                return still_erased(erased, parsed.format)
            origin, report = await matching.origin_of(store, work.source, again=work.again)
            if report is not None:
                return report
            work = msgspec.structs.replace(work, origin=origin)
            return await _create(store, work, stream, _why_other(erased, other, stream), clock)
        if state is None:  # nothing is added to it, whatever forks have of it
            erased = erased or reports.Lost(stream)
            continue
        report = await _update(store, work, state, clock)
        if report is not None:
            return about(report, work.subject, state.header)
        if erased is None and await matching.has_lost_entries(store, stream):
            erased = reports.Lost(stream, is_whole=False)
        other = other or stream
    raise AssertionError("session_ids never ends")


def _is_of(header: StreamHeader, parsed: ParsedSource) -> bool:
    """Return whether `header` is of a session, not a fork, with the format and id of `parsed`."""
    return header.fork is None and is_of_source(header, parsed)


def _report(work: _Work, stream: StreamId, warning: str | None) -> ImportReport:
    added, warnings = work.added, work.source.parsed.warnings
    malformed = tuple(sorted(set(added.malformed)))
    return ImportReport(
        session=stream,
        format=work.source.parsed.format,
        entries=added.entries,
        messages=added.messages,
        skipped=len(malformed),
        malformed=malformed,
        warnings=warnings if warning is None else (warning, *warnings),
        is_new=added.is_new,
    )


# -- a new session


async def _create(
    store: SessionStore,
    work: _Work,
    stream: StreamId,
    why_other: str | None,
    clock: Clock,
) -> ImportReport:
    parsed, now = work.source.parsed, clock.now_ms()
    first_at = next((item.at for item in parsed.items if item.at is not None), now)
    created_at = parsed.header.created_at
    header = StreamHeader(
        id=stream,
        created_at=first_at if created_at is None else created_at,
        origin="subagent" if parsed.header.is_subagent else "import",
        cwd=parsed.header.cwd,
        parent=work.origin or _parent_of(parsed),
        subject=work.subject,
        metadata={
            IMPORT: {
                **parsed.header.metadata,
                "format": parsed.format,
                "session": parsed.header.session,
            }
        },
    )
    base = Base(
        stream, EMPTY, None, copied_lines=matching.copied_lines(parsed.header, header.parent)
    )
    adding = ItemAppend(work.source, work.name, base, work.added)
    await adding.run(store, now, work.piece_bytes, header)
    return _report(work, stream, why_other)


def _why_other(erased: reports.Lost | None, other: StreamId | None, stream: StreamId) -> str | None:
    """Return why the session got the id `stream`; None if `stream` is the id in the file."""
    if erased is not None:
        return f"{erased}; this file became session {stream}"
    if other is None:
        return None
    return (
        f"this file is not a continuation of session {other}, whose id it has; "
        f"it became session {stream}"
    )


def _parent_of(parsed: ParsedSource) -> StreamId | None:
    """Return the id that the parent session of `parsed` has in the store after an import."""
    parent = parsed.header.parent
    return None if parent is None else next(session_ids(parsed.format, parent, b""))


# -- a session that was imported before


async def _update(
    store: SessionStore, work: _Work, state: StreamState, clock: Clock
) -> ImportReport | None:
    """Add the new items of `work`; return None if the session at `state` is a different session."""
    stream, parsed = state.header.id, work.source.parsed
    is_of = _is_of(state.header, parsed)
    found = await store.notes(stream, (ImportSource.kind,))
    notes = [note for note in found if note.stream == stream]
    if is_of and not notes and await matching.has_lost_entries(store, stream):
        return None  # the file may contain what was erased
    originals = originals_of(notes, parsed.format)
    relation, original = await _relation(store, work.source.content, originals)
    if relation in (FileRelation.SAME, FileRelation.OLDER):
        return _nothing_new(work, stream, relation)
    base: Base | None = None
    if relation is FileRelation.GROWN or not notes or _may_be_rewritten(state, parsed):
        grown = original if relation is FileRelation.GROWN else None
        others = {note.seq for note in notes}.difference(*(each.seqs for each in originals))
        base = await _base(store, work, state, grown, others)
        if base is not None and grown is not None and grown is not originals[-1]:
            base = msgspec.structs.replace(base, begin=0, parts=())  # parts follow the newest only
    if (base is None or not notes) and parsed.format in WRITTEN_HERE:
        own = await own_file_of(store, state, work.source)
        if own is not None and own.is_complete:
            return _nothing_new(work, stream, FileRelation.SAME)
        base = base if own is None else own.base
    if base is None:
        return None  # what the session has is not the beginning of this file
    if state.open_turn is not None:
        raise TurnOpen(stream, state.open_turn)
    has_grown = relation is FileRelation.GROWN
    adding = ItemAppend(work.source, work.name, base, work.added)
    is_cut_off = bool(originals) and originals[-1].is_cut_off
    if (has_grown or not is_of) and not is_cut_off and adding.has_only_known():
        return _nothing_new(work, stream, FileRelation.SAME)
    await adding.run(store, clock.now_ms(), work.piece_bytes)
    return _report(work, stream, None)


def _may_be_rewritten(state: StreamState, parsed: ParsedSource) -> bool:
    """Return whether the program that wrote the file can change lines that it wrote before.

    If earlier lines can change, the import compares entries instead of bytes. The program pi
    rewrites a file once, when it migrates the file to a newer version.
    """
    if parsed.header.is_saved_whole:
        return True
    imported = described_source(state.header)
    before, now = imported.get("version", 1), parsed.header.metadata.get("version", 1)
    if parsed.format != pi_words.FORMAT or not isinstance(before, int) or not isinstance(now, int):
        return False
    return before < now


async def _relation(
    store: SessionStore, content: Content, originals: list[Original]
) -> tuple[FileRelation, Original | None]:
    """Return how `content` relates to the stored versions `originals`, and the matching version.

    Shape: the relation is also GROWN if only the end of an interrupted import is missing. A session
    might have been continued in several files of pi or Operator. A file of a format other than pi
    and Operator can only continue the newest version that was imported.
    """
    found: tuple[FileRelation, Original | None] = (FileRelation.OTHER, None)
    for original in originals:
        relation = await asyncio.to_thread(relation_of, content, original)
        if relation is FileRelation.OLDER and not await _is_beginning(store, content, original):
            relation = FileRelation.OTHER
        if relation is FileRelation.SAME and original is originals[-1] and original.is_cut_off:
            return FileRelation.GROWN, original
        if relation in (FileRelation.SAME, FileRelation.OLDER):
            return relation, original
        is_newest = original is originals[-1]
        if relation is FileRelation.GROWN and (is_newest or original.format in WRITTEN_HERE):
            found = relation, original
    return found


async def _is_beginning(store: SessionStore, content: Content, original: Original) -> bool:
    """Return whether `content` is the beginning of the stored version `original`.

    Only the stored part in which `content` ends is compared.
    """
    end = content.length
    last = next(p.source for p in original.parts if p.source.offset + p.source.length > end)
    kept = await store.blob(last.blob)
    return kept.startswith(content.read(last.offset, end - last.offset))


async def _base(
    store: SessionStore,
    work: _Work,
    state: StreamState,
    grown: Original | None,
    others: Collection[int],
) -> Base | None:
    """Return which part of the file the session at `state` already contains.

    The result is None if the file belongs to a different session. `grown` is the stored version of
    the file that the current file extends. `others` are the seqs of the entries that store files of
    other formats.
    """
    parsed, stream = work.source.parsed, state.header.id
    traces = await traces_of(
        store,
        state.header,
        Traces(
            frozenset() if grown is None else grown.seqs,
            others=others,
            has_written_ids=parsed.format in WRITTEN_HERE,
        ),
    )
    is_of = _is_of(state.header, parsed)
    ids = await foreign_ids(store, traces.streams) if is_of or state.header.fork else {}
    ids = {**traces.written_ids, **ids}
    known: Mapping[int, EntryId] = {}
    if ids or grown is not None or is_of:
        known = await asyncio.to_thread(_known_entries, work.source, traces, ids)
    if grown is None:
        bodies = _with_bodies(work.source)
        if not await asyncio.to_thread(traces.are_continued_by, bodies, known):
            return None
    return Base(
        stream=stream,
        head=state.head,
        leaf=state.leaf,
        known=known,
        begin=0 if grown is None else grown.byte_length,
        parts=() if grown is None else grown.places,
        with_usage=traces.with_usage,
        has_own_leaf=not _may_advance(traces, parsed, known),
        is_cut_off=grown is not None and grown.is_cut_off,
        opaque=traces.opaque,
        copied_lines=matching.copied_lines(parsed.header, state.header.parent),
    )


def _known_entries(
    source: Source, traces: Traces, ids: Mapping[str, EntryId]
) -> Mapping[int, EntryId]:
    items = source.parsed.items
    known = traces.find_known(items, ids)
    if not traces.has_said or len(known) == len(items):
        return known
    return known | dict(traces.said_by(_with_bodies(source), known))


def _with_bodies(source: Source) -> Iterator[tuple[int, Item]]:
    items = (item for stretch in source.stretches() for item in stretch.items)
    return enumerate(items)


def _nothing_new(work: _Work, stream: StreamId, relation: FileRelation) -> ImportReport:
    is_older = relation is FileRelation.OLDER
    warnings = ("more of this file was imported before; nothing was added",) if is_older else ()
    return ImportReport(stream, work.source.parsed.format, 0, 0, 0, (), warnings, is_new=False)


def _may_advance(traces: Traces, parsed: ParsedSource, known: Mapping[int, EntryId]) -> bool:
    """Return whether the import is allowed to move the leaf; False if perdure itself has moved it.

    The import is allowed to move the leaf if an earlier import set the leaf. If the file continues
    from a leaf that perdure added and exported, the import is also allowed to move this leaf.
    """
    if traces.mover is None or traces.is_mover_imported:
        return True
    position = parsed.leaf
    while position is not None and known.get(position) != traces.mover:
        position = parsed.items[position].parent
    return traces.is_mover_in_tree and position is not None
