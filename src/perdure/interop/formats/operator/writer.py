"""Write a complete session as an Operator file: its original file, if any, plus new records.

The functions of this module are pure. A session that was read from an Operator file and not changed
gives the bytes of that file. For a changed session, new records are added to the bytes of its file.
A session without an Operator file is written from scratch. In a new file, the tree comes first, in
log order. Labels and the title follow; in Operator, they are records of the tree too, and they move
the leaf. Therefore a new file with labels or a title ends with a ``leaf`` record that moves back to
the current leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perdure.codecs.fields import Fields, fields_of, name_in, number_in
from perdure.codecs.ids import HEADER_TITLE, written_id
from perdure.codecs.lines import lines_of, read_line
from perdure.codecs.operator import records
from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.operator.records import CONTEXT
from perdure.codecs.operator.words import FORMAT, HEADERS, META, VERSION
from perdure.codecs.protocol import WriteContext
from perdure.interop.formats.bundles import leaf_of, models_in_force, standing_of
from perdure.interop.formats.losses import MEDIUM, OUTSIDE, UNDONE, Losses, difference_text
from perdure.interop.formats.native import Bundle
from perdure.interop.formats.record_lines import RecordLines, changed_labels
from perdure.interop.reports import Exported
from perdure.session.codec import Body, Unknown, readable
from perdure.session.entries import Entry
from perdure.session.fold import labels_of
from perdure.session.ids import EntryId, blob_hash
from perdure.session.kinds import OPAQUE, BranchSummary, Compaction, CustomMessage
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    ToolResultPart,
)
from perdure.session.notes import Label, LeafMoved, SessionInfoChanged, source_of
from perdure.session.tree import branch_to


class SourceFile(msgspec.Struct, frozen=True):
    """The imported file of a session: its bytes, and the seqs of the entries that store it."""

    content: bytes
    parts: frozenset[int]


def is_current(content: bytes) -> bool:
    """Return whether records of version 3 can be added to the file `content`.

    Records can also be added after a header without a version, as in Operator's documentation.
    """
    for line in lines_of(content):
        fields = fields_of(read_line(line.content).value)
        if fields is None:
            continue
        is_header = name_in(fields, "type") in HEADERS
        return is_header and number_in(fields, "version") in (VERSION, None)
    return False


def file_of(bundle: Bundle, base: SourceFile | None = None) -> Exported:
    """Return the session in `bundle` as an Operator file that starts with `base`, if given.

    Shape: the same bundle gives the same bytes.
    """
    writer = _Writer(bundle, base)
    content = writer.content()
    difference: tuple[str, ...] = ()
    if base is not None and writer.added:
        is_rewritten = not is_current(base.content)  # an older form: nothing can be added to it
        difference = (difference_text(writer.added, is_rewritten=is_rewritten),)
        if is_rewritten:
            writer = _Writer(bundle, None)
            content = writer.content()
    warnings = (*writer.warnings(), *difference)
    return Exported(bundle.header.id, FORMAT, content, warnings)


class _Writer:
    def __init__(self, bundle: Bundle, base: SourceFile | None) -> None:
        self._bundle = bundle
        self._base = base
        self._standing = standing_of(bundle)
        self._tree = [entry for entry in bundle.entries if entry.lane == "tree"]
        self._in_base = _read_from(bundle.entries, base)
        self._fresh = [entry for entry in self._tree if entry.id not in self._in_base]
        self._media = {SCHEME + blob_hash(content): content for content in bundle.blobs}
        self._lost = Losses()
        self._models = models_in_force(self._tree)
        foreign = {entry: alias for alias, entry in bundle.aliases.items()}
        self._first = {entry: foreign[entry] for entry in self._in_base if entry in foreign}
        self._last = dict(self._first)
        self._taken = {*self._first.values()}
        self._writing = WriteContext(
            own="",
            first=self._first.get,
            last=self._last.get,
            blob=self._media.get,
            model=self._models.get,
            undone=self._standing.undone,
            kept_over=_kept_over(self._tree, self._standing.undone),
        )
        self._records = RecordLines(OPERATOR, self._writing, self._last, self._lost)
        self.added = 0

    def content(self) -> bytes:
        """Return the file."""
        lines = [line for entry in self._fresh for line in self._lines(entry)]
        lines += self._closing()
        self.added = len(lines)
        added = b"".join(line + b"\n" for line in lines)
        if self._base is not None:
            content = self._base.content
            needs_end = bool(added) and bool(content) and not content.endswith(b"\n")
            return content + (b"\n" if needs_end else b"") + added
        header = self._bundle.header
        first = OPERATOR.header(header.id, header.created_at, self._standing.cwd, None)
        return OPERATOR.line(first) + b"\n" + added

    def _free_id(self, entry: EntryId, ordinal: int = 0) -> str:
        stored = self._bundle.stored_ids.get(entry, entry)
        own, attempt = written_id(stored, ordinal), 0
        while own in self._taken:
            attempt += 1
            own = written_id(stored, ordinal, attempt)
        self._taken.add(own)
        return own

    def _lines(self, entry: Entry) -> list[bytes]:
        body = readable(entry)
        self._note_losses(entry, body)
        self._first[entry.id] = own = self._free_id(entry.id)
        return self._records.of_entry(entry, body, own, self._free_id)

    # -- the end: labels, the title, the leaf

    def _closing(self) -> list[bytes]:
        leaf = self._standing.leaf
        parent = None if leaf is None else self._last.get(leaf)
        lines: list[bytes] = []
        for note, record in [*self._labels(), *self._title()]:
            name = self._free_id(note.id)
            lines.append(self._records.line(record, name, parent, note.at))
            parent = name
        stood = leaf_of(entry for entry in self._bundle.entries if self._is_of_base(entry))
        ends_at = self._fresh[-1].id if self._fresh else stood
        if (not lines and ends_at == leaf) or not self._tree:
            return lines
        lines.append(self._leaf_line(leaf, parent))
        return lines

    def _leaf_line(self, leaf: EntryId | None, parent: str | None) -> bytes:
        """Return the record that moves back to `leaf`; its parent is `parent`, the last record."""
        moves = [entry for entry in self._bundle.entries if entry.kind == LeafMoved.kind]
        note = moves[-1] if moves else self._tree[-1]
        record = records.leaf(None if leaf is None else self._last.get(leaf))
        return self._records.line(record, self._free_id(note.id), parent, note.at)

    def _is_of_base(self, entry: Entry) -> bool:
        return entry.id in self._in_base

    def _labels(self) -> list[tuple[Entry, Fields]]:
        """Return the new and changed labels: for each, its side entry and its record."""
        notes = [entry for entry in self._bundle.entries if entry.kind == Label.kind]
        said = labels_of(note for note in notes if self._is_of_base(note))
        newest = {note.about: note for note in notes if note.about is not None}
        changed = changed_labels(newest, self._standing.labels, said, self._last)
        return [(note, records.label(target, text)) for note, target, text in changed]

    def _title(self) -> list[tuple[Entry, Fields]]:
        changes = [e for e in self._bundle.entries if e.kind == SessionInfoChanged.kind]
        known = [note for note in changes if self._is_of_base(note)]
        bundle = msgspec.structs.replace(self._bundle, entries=tuple(known))
        said = standing_of(bundle).title if self._base is not None else None
        if self._standing.title == said:
            return []
        header = self._bundle.header
        stream, at = header.id, header.created_at
        nowhere = Entry(
            stream, HEADER_TITLE, "side", None, None, at, SessionInfoChanged.kind, 1, b"{}"
        )
        record = records.title(self._standing.title)
        return [(changes[-1] if changes else nowhere, record)]

    # -- losses

    def _note_losses(self, entry: Entry, body: Body) -> None:
        lost = self._lost
        lost.add_meta(entry, META)
        match body:
            case Unknown():
                lost.add(f"{entry.kind} entry, written outside the context")
            case Message():
                self._note_parts(body.parts, body.role)
                is_said = body.model in (None, self._models.get(entry.id))
                lost.add("name of the model that answered", not is_said)
                lost.add("message of role context, which becomes the user's", body.role == CONTEXT)
            case CustomMessage(in_context=False):
                lost.add(OUTSIDE)
                for part in body.parts:
                    lost.add(MEDIUM, isinstance(part, MediaPart))
            case CustomMessage():
                self._note_parts(body.parts, CONTEXT)
            case Compaction() if entry.id in self._standing.undone:
                lost.add(UNDONE)
            case Compaction():
                self._note_compaction(entry, body)
            case BranchSummary():
                lost.add("usage of a summary", body.usage is not None)
                lost.add("empty summary, written as state", not body.summary.strip())
            case _:
                pass

    def _note_compaction(self, entry: Entry, body: Compaction) -> None:
        for message in body.retained or ():
            self._note_parts(message.parts, message.role)
        if body.retained:
            is_kept_over = entry.id in self._writing.kept_over
            self._lost.add("retained messages of a compaction", is_kept_over)
            self._lost.add("compaction; its retained messages are on the branch", not is_kept_over)
        self._lost.add("usage of a summary", body.usage is not None)

    def _note_parts(self, parts: Iterable[Part], role: str) -> None:
        for part in parts:
            match part:
                case MediaPart():
                    self._lost.add(MEDIUM, not self._holds(part))
                case ToolResultPart() if role != CONTEXT:
                    self._lost.add("medium in a tool's result", len(part.media))
                case _ if not records.is_written(part, role):
                    self._lost.add_part(part)
                case _:
                    pass

    def _holds(self, part: MediaPart) -> bool:
        return records.is_medium(part) and part.handle in self._media

    def warnings(self) -> list[str]:
        """Return warnings about content that the file lacks; call this method after `content`."""
        bundle, held = self._bundle, self._in_base
        if self._base is None:
            self._lost.add_header(bundle.header)
        self._lost.add_ids((entry.id for entry in self._tree), bundle.aliases, self._last)
        self._lost.add_records(entry for entry in bundle.entries if entry.id not in held)
        self._lost.add_notes(bundle.entries)
        return self._lost.texts()


def _kept_over(tree: Iterable[Entry], undone: frozenset[EntryId]) -> frozenset[EntryId]:
    """Return the compactions that a later compaction on their branch keeps in the context."""
    by_id = {entry.id: entry for entry in tree}
    found: set[EntryId] = set()
    for entry in by_id.values():
        body = readable(entry) if entry.kind == Compaction.kind else None
        if not isinstance(body, Compaction) or entry.id in undone or body.first_kept is None:
            continue
        passed: list[EntryId] = []
        for above in reversed(branch_to(entry.parent_id, by_id)):
            if above.id == body.first_kept:
                found.update(passed)
                break
            if above.kind == Compaction.kind:
                passed.append(above.id)
    return frozenset(found)


def _read_from(entries: Sequence[Entry], base: SourceFile | None) -> Mapping[EntryId, None]:
    """Return a mapping whose keys are the ids of the entries that were read from the file `base`.

    An opaque entry (an unreadable line) is included if `base` contains its line.
    """
    if base is None:
        return {}
    found: dict[EntryId, None] = {}
    lines = {line.content for line in lines_of(base.content)}
    for entry in entries:
        source = source_of(entry.body)
        is_line = entry.kind == OPAQUE and entry.body in lines
        if is_line or (source is not None and source.part in base.parts):
            found[entry.id] = None
    return found
