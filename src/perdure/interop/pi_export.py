"""Export a session as a pi file: the lines of its original file, then additions in version 3.

The export of an unchanged import has the same bytes as the imported file. A fork, or a session that
was not imported from pi, is written from scratch. For entries that were read from a pi file, the
records of that file are used. The warnings count the added lines, and the content that pi cannot
express (records of calls and turns, questions to people, undone compactions).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

import msgspec

from perdure.codecs.fields import Fields
from perdure.codecs.ids import HEADER_TITLE, written_id, written_ids
from perdure.codecs.pi import records
from perdure.codecs.pi.codec import PI
from perdure.codecs.pi.words import BASH, FORMAT, LEAF_MARKER, MOST_HEADER_BYTES, VERSION
from perdure.codecs.protocol import WriteContext
from perdure.codecs.shared_keys import ROOT
from perdure.interop.aliases import foreign_ids, known_items
from perdure.interop.bundle import blobs_of
from perdure.interop.formats.bundles import models_in_force, standing_of
from perdure.interop.formats.items import described_source
from perdure.interop.formats.losses import HALF, MEDIUM, OUTSIDE, UNDONE, Losses, difference_text
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.pi import migration, reader
from perdure.interop.formats.record_lines import RecordLines, changed_labels
from perdure.interop.reports import Exported
from perdure.interop.source_files import content_of, originals_of
from perdure.session.codec import ENTRY_NOTES, Body, Unknown, readable
from perdure.session.entries import Entry
from perdure.session.fold import labels_of, undone_of
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id
from perdure.session.info import info_after, info_of
from perdure.session.kinds import BranchSummary, Compaction, CustomMessage
from perdure.session.media.inline import SCHEME
from perdure.session.messages import MediaPart, Message, Part, ToolResultPart
from perdure.session.notes import ImportSource, Label, LeafMoved, SessionInfoChanged, source_of
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import SessionStore

_NOTES = (*ENTRY_NOTES, SessionInfoChanged.kind, ImportSource.kind)


class _Session(msgspec.Struct, frozen=True):
    """The session to export. `stored_ids` comes from `Bundle.stored_ids`."""

    state: StreamState
    own: Sequence[Entry]
    tree: Sequence[Entry]
    notes: Sequence[Entry]
    aliases: Mapping[str, EntryId]
    blobs: Mapping[str, bytes]
    stored_ids: Mapping[EntryId, EntryId] = {}

    @property
    def stream(self) -> StreamId:
        return self.state.header.id


async def export_pi(store: SessionStore, stream: StreamId) -> Exported:
    """Return the session `stream` as a pi file.

    Raises: SessionNotFound if the session does not exist.
    """
    session = await _session(store, stream)
    return await asyncio.to_thread(_written, stream, _Writer(session))


def _written(stream: StreamId, writer: _Writer) -> Exported:
    return Exported(stream, FORMAT, writer.content(), tuple(writer.warnings()))


def pi_of(bundle: Bundle) -> Exported:
    """Return the session in `bundle` as a pi file.

    Shape: if the bundle contains no imported pi file, the file is written from scratch.
    """
    standing = standing_of(bundle)
    state = StreamState(
        header=bundle.header,
        head=len(bundle.entries) - 1,
        leaf=standing.leaf,
        hash=b"",
        epoch=0,
        open_turn=None,
        info=info_after(info_of(bundle.header), bundle.entries),
    )
    session = _Session(
        state,
        own=bundle.entries,
        tree=[entry for entry in bundle.entries if entry.lane == "tree"],
        notes=[entry for entry in bundle.entries if entry.kind in _NOTES],
        aliases=bundle.aliases,
        blobs={blob_hash(content): content for content in bundle.blobs},
        stored_ids=bundle.stored_ids,
    )
    return _written(bundle.header.id, _Writer(session))


async def _session(store: SessionStore, stream: StreamId) -> _Session:
    state = await store.state(stream)
    tree = await store.tree(stream)
    notes = await store.notes(stream, _NOTES)
    own = await store.entries(stream)
    aliases = await foreign_ids(store, dict.fromkeys(e.stream for e in [*tree, *own]))
    blobs = await blobs_of(store, [*tree, *notes])
    return _Session(state, own, tree, notes, aliases, blobs)


class _Base(msgspec.Struct, frozen=True):
    """The start of an exported file: its bytes, the record ids of its entries, and its leaf.

    `outdated` are entries that perdure read from an incomplete line, which pi completed later.
    """

    content: bytes
    ids: Mapping[EntryId, str]
    leaf: EntryId | None
    unidentified: Mapping[int, str]
    outdated: frozenset[EntryId] = frozenset()


def _original(session: _Session) -> _Base | None:
    """Return the pi file from which the session was imported, as the start of the exported file."""
    header = session.state.header
    if header.fork is not None or described_source(header).get("format") != FORMAT:
        return None
    originals = originals_of((n for n in session.notes if n.kind == ImportSource.kind), FORMAT)
    content = content_of(originals, session.blobs)
    if content is None:
        return None
    parsed = reader.parse(content)
    ids = {**written_ids(session.own), **session.aliases}
    known = known_items(parsed.items, session.own, ids, originals[-1].seqs)
    leaf = None if parsed.leaf is None else known.get(parsed.leaf)
    unidentified: dict[int, str] = {}
    names: dict[EntryId, str] = {}
    for position, item in enumerate(parsed.items):
        entry = known.get(position)
        place = entry_id(session.stream, -item.number) if entry is None else entry
        name = item.alias or written_id(place)
        if item.alias is None:
            unidentified[item.offset] = name
        if entry is not None:
            names[entry] = name
    parts = originals[-1].seqs
    outdated = {entry.id for entry in session.own if _is_of(entry, parts)} - names.keys()
    outdated -= _passed_by(session, names.keys() | outdated, outdated)
    return _Base(content, names, leaf, unidentified, frozenset(outdated))


def _is_of(entry: Entry, parts: Collection[int]) -> bool:
    """Return whether `entry` comes from the file whose parts have the seqs `parts`."""
    source = source_of(entry.body)
    return source is not None and bool(source.length) and source.part in parts


def _passed_by(
    session: _Session, held: Collection[EntryId], outdated: Collection[EntryId]
) -> set[EntryId]:
    """Return the `outdated` entries that must still be exported, because they have new descendants.

    `held` are the entries that need not be written.
    """
    parents = {entry.id: entry.parent_id for entry in session.tree}
    starts = [parents[entry] for entry in parents if entry not in held]
    passed: set[EntryId] = set()
    for start in [*starts, session.state.leaf]:
        entry = start
        while entry is not None and entry in outdated and entry not in passed:
            passed.add(entry)
            entry = parents.get(entry)
    return passed


def _new_file(session: _Session) -> _Base:
    header = session.state.header
    fields = PI.header(header.id, header.created_at, session.state.info.cwd, None)
    return _Base(PI.line(fields) + b"\n", {}, None, {})


def _pi_parts(notes: Sequence[Entry]) -> dict[EntryId, ImportSource]:
    """Return those ``import_source`` entries among `notes` that store parts of pi files."""
    parts = ((note.id, readable(note)) for note in notes if note.kind == ImportSource.kind)
    return {
        id: part for id, part in parts if isinstance(part, ImportSource) and part.format == FORMAT
    }


class _Writer:
    def __init__(self, session: _Session) -> None:
        self._session = session
        original = _original(session)
        self._has_original = original is not None
        self._base = original or _new_file(session)
        held = self._base.ids.keys() | self._base.outdated
        self._fresh = [entry for entry in session.tree if entry.id not in held]
        self._parts = _pi_parts(session.notes)
        self._ids = self._file_ids()
        media = {SCHEME + name: content for name, content in session.blobs.items()}
        self._media = media
        self._lost = Losses()
        self._moves_written = 0
        self._added = 0
        self._last: dict[EntryId, str] = dict(self._base.ids)  # id of an entry's last record
        self._writing = WriteContext(
            own="",
            first=self._ids.get,
            last=self._last.get,
            blob=media.get,
            model=models_in_force(session.tree).get,
            undone=undone_of(session.notes),
        )
        self._records = RecordLines(PI, self._writing, self._last, self._lost)
        self._times = {entry.id: entry.at for entry in (*session.notes, *session.own)}

    def content(self) -> bytes:
        """Return the file."""
        lines = [line for entry in self._fresh for line in self._lines(entry)]
        lines += self._closing()
        base = self._base.content
        self._added = len(lines)
        if not lines:
            return base
        if migration.needs_migration(base):
            version = migration.version_of(base)
            self._lost.add(
                f"version {version:g} of the file; with what was added it is of version "
                f"{VERSION}, in which its lines may mean something else",
                version > VERSION,
            )
            base = migration.migrate(base, self._base.unidentified)
        if base and not base.endswith(b"\n"):
            base += b"\n"
        return base + b"".join(line + b"\n" for line in lines)

    def _file_ids(self) -> dict[EntryId, str]:
        """Return each entry's id in the file: its original id, or a new unused id."""
        foreign = {entry: alias for alias, entry in self._session.aliases.items()}
        ids = dict(self._base.ids)
        taken = {*ids.values(), *self._base.unidentified.values()}
        for entry in self._fresh:
            own = foreign.get(entry.id) if self._original_line(entry) is not None else None
            attempt = 0
            while own is None or own in taken:
                own = self._name_of(entry.id, attempt=attempt)
                attempt += 1
            taken.add(own)
            ids[entry.id] = own
        return ids

    # -- entries of the tree

    def _lines(self, entry: Entry) -> list[bytes]:
        parent = None if entry.parent_id is None else self._last.get(entry.parent_id)
        own = self._ids[entry.id]
        body = readable(entry)
        original = self._original_line(entry)
        self._last[entry.id] = own
        if original is not None:
            return [self._rewrite_line(original, body, own, parent)]
        self._note_losses(entry, body)
        return self._records.of_entry(entry, body, own, self._name_of)

    def _name_of(self, entry: EntryId, ordinal: int = 0, attempt: int = 0) -> str:
        """Return a record id for `entry`; it does not depend on which branches are exported."""
        return written_id(self._session.stored_ids.get(entry, entry), ordinal, attempt)

    def _original_line(self, entry: Entry) -> bytes | None:
        """Return the line of the pi file from which `entry` was read; None if it is not stored."""
        source = source_of(entry.body)
        if source is None:
            return None
        part = self._parts.get(entry_id(entry.stream, source.part))
        if part is None or source.offset < part.offset or part.blob not in self._session.blobs:
            return None
        begin = source.offset - part.offset
        return self._session.blobs[part.blob][begin : begin + source.length]

    def _rewrite_line(self, line: bytes, body: Body, own: str, parent: str | None) -> bytes:
        """Return the record `line` with the ids that its references have in the exported file."""
        changes: dict[str, object] = {"id": own, "parentId": parent}
        if isinstance(body, Compaction) and body.retained is None:
            kept = None if body.first_kept is None else self._ids.get(body.first_kept)
            changes["firstKeptEntryId"] = kept or own
        if isinstance(body, BranchSummary):
            origin = None if body.from_id is None else self._last.get(body.from_id)
            changes["fromId"] = origin or ROOT
        return migration.replace_keys(line, changes, "firstKeptEntryIndex")

    # -- the end: labels, the title, the leaf

    def _closing(self) -> list[bytes]:
        leaf = self._session.state.leaf
        parent = None if leaf is None else self._last.get(leaf)
        lines: list[bytes] = []
        for note, record in [*self._labels(), *self._title()]:
            name = self._name_of(note)
            lines.append(self._records.line(record, name, parent, self._at(note)))
            parent = name
        ends_at = self._fresh[-1].id if self._fresh else self._base.leaf
        if lines or ends_at == leaf or (not self._session.tree):
            return lines
        moves = [entry for entry in self._session.own if entry.kind == LeafMoved.kind]
        note = moves[-1].id if moves else entry_id(self._session.stream, -1)
        self._moves_written = sum(not self._is_held(entry) for entry in moves[-1:])
        marker = PI.custom(LEAF_MARKER, None)
        return [self._records.line(marker, self._name_of(note), parent, self._at(note))]

    def _is_held(self, note: Entry) -> bool:
        return note.id in self._base.ids or note.id in self._base.outdated

    def _at(self, note: EntryId) -> int:
        return self._times.get(note, self._session.state.header.created_at)

    def _labels(self) -> list[tuple[EntryId, Fields]]:
        """Return the new and changed labels: for each, the id of its side entry, and its record."""
        notes = [note for note in self._session.notes if note.kind == Label.kind]
        said = labels_of(note for note in notes if self._is_held(note))
        now = labels_of(notes)
        newest: dict[EntryId, Entry] = {}
        for note in notes:
            if note.about is not None:
                newest.pop(note.about, None)
                newest[note.about] = note
        changed = changed_labels(newest, now, said, self._last)
        return [(note.id, records.label(target, text)) for note, target, text in changed]

    def _title(self) -> list[tuple[EntryId, Fields]]:
        said: str | None = None
        now, source = self._session.state.header.title, entry_id(self._session.stream, HEADER_TITLE)
        for note in self._session.notes:
            change = readable(note) if note.kind == SessionInfoChanged.kind else None
            if isinstance(change, SessionInfoChanged) and change.title is not msgspec.UNSET:
                now, source = change.title, note.id
                said = change.title if self._is_held(note) else said
        if now == said:
            return []
        if not now:
            self._lost.add("title that was cleared")
            return []
        return [(source, PI.title(now))]

    # -- losses

    def _note_losses(self, entry: Entry, body: Body) -> None:
        lost = self._lost
        lost.add_meta(entry)
        match body:
            case Unknown():
                lost.add(f"{entry.kind} entry, written outside the context")
            case Message():
                is_shown = body.role in ("system", "context")
                lost.add(f"message of role {body.role}, which becomes the user's", is_shown)
                self._note_parts(body.parts, body.role)
                is_filtered = body.stop_reason == "content_filter"
                lost.add("answer stopped by a filter, written as an error", is_filtered)
            case CustomMessage(in_context=False) if body.custom_type != BASH:
                lost.add(OUTSIDE)
                for part in body.parts:
                    lost.add(MEDIUM, isinstance(part, MediaPart))
            case Compaction() if entry.id in self._writing.undone:
                lost.add(UNDONE)
            case CustomMessage() if body.in_context:
                self._note_parts(body.parts, "user")
            case Compaction():
                for message in body.retained or ():
                    self._note_parts(message.parts, message.role)
            case _:
                pass

    def _note_parts(self, parts: Sequence[Part], role: str) -> None:
        for part in parts:
            match part:
                case MediaPart() if role not in ("assistant", "tool"):
                    self._lost.add(MEDIUM, not self._holds(part))
                case ToolResultPart() if role == "tool":
                    self._lost.add(MEDIUM, sum(not self._holds(each) for each in part.media))
                case _ if not records.is_written(part, role):
                    self._lost.add_part(part)
                case _:
                    pass

    def _holds(self, part: MediaPart) -> bool:
        return records.is_image(part) and part.handle in self._media

    def warnings(self) -> list[str]:
        """Return warnings about content that the file lacks; call this method after `content`."""
        session, base = self._session, self._base
        held = base.ids.keys() | base.outdated
        self._lost.add(HALF, len(base.outdated))
        undone = undone_of(session.notes) & {entry.id for entry in session.tree if entry.id in held}
        if not self._has_original:
            self._lost.add_header(session.state.header)
        self._lost.add_ids((entry.id for entry in session.tree), session.aliases, self._ids)
        self._lost.add_records(entry for entry in session.own if entry.id not in held)
        moves = sum(e.kind == LeafMoved.kind and e.id not in held for e in session.own)
        self._lost.add("branch switch", moves - self._moves_written)
        self._lost.add_notes(session.own)
        texts = self._lost.texts()
        if self._has_original and self._added:
            is_rewritten = migration.needs_migration(base.content)
            texts.append(difference_text(self._added, is_rewritten=is_rewritten))
        if base.content.find(b"\n") > MOST_HEADER_BYTES:
            texts.append(
                f"its header has more than {MOST_HEADER_BYTES} bytes: `pi -c` passes over it"
            )
        texts += [f"compaction {id} was undone; in pi it stays in effect" for id in sorted(undone)]
        return texts
