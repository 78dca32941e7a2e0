"""The import originals of a session: which files it was read from, and what of a file is new.

Pure. An original is a file as it was, kept in one or more parts; a part that begins at offset 0
begins a new version of the file (one that was rewritten), another continues the version before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from perdure.interop.formats.bundles import readable
from perdure.interop.formats.items import (
    Item,
    body_without_source,
    source_of,
    without_source,
)
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE, Message
from perdure.session.notes import ImportSource
from perdure.stores.chain import blob_hash


class Part(msgspec.Struct, frozen=True):
    """A part of an original, with the ``import_source`` entry that keeps it."""

    entry: Entry
    source: ImportSource


class Original(msgspec.Struct, frozen=True):
    """One version of a file, in parts that follow each other without a gap."""

    parts: tuple[Part, ...]

    @property
    def seqs(self) -> frozenset[int]:
        """The seqs of its parts."""
        return frozenset(part.entry.seq for part in self.parts)

    @property
    def byte_length(self) -> int:
        """How long the file was."""
        last = self.parts[-1].source
        return last.offset + last.length


class Relation(Enum):
    """How a file stands to an original."""

    SAME = "same"
    OLDER = "older"
    GROWN = "grown"
    OTHER = "other"


def originals_of(notes: Iterable[Entry]) -> list[Original]:
    """The versions kept by the ``import_source`` entries among `notes`, oldest first."""
    versions: list[list[Part]] = []
    for entry in notes:
        source = readable(entry)
        if not isinstance(source, ImportSource):
            continue
        if source.offset == 0 or not versions:
            versions.append([])
        versions[-1].append(Part(entry, source))
    return [Original(tuple(parts)) for parts in versions]


def content_of(originals: Sequence[Original], blobs: Mapping[str, bytes]) -> bytes | None:
    """The newest of `originals`; None where there is none, or `blobs` lack a part of it."""
    names = [part.source.blob for part in originals[-1].parts] if originals else []
    if not names or any(name not in blobs for name in names):
        return None
    return b"".join(blobs[name] for name in names)


def relation_of(content: bytes, original: Original) -> Relation:
    """How the file `content` stands to `original`, without looking at what is kept of it.

    Shape: OLDER only says that it could be; `is_prefix_hash` of the part it ends in tells.
    """
    for part in original.parts:
        begin, end = part.source.offset, part.source.offset + part.source.length
        if end > len(content):
            return Relation.OLDER
        if blob_hash(content[begin:end]) != part.source.blob:
            return Relation.OTHER
    return Relation.SAME if original.byte_length == len(content) else Relation.GROWN


def known_items(
    items: Sequence[Item],
    entries: Sequence[Entry],
    ids: Mapping[str, EntryId],
    parts: Collection[int],
) -> dict[int, EntryId]:
    """Item -> the entry it is already in the session as.

    `ids` are foreign ids, `parts` the seqs of the parts of the version of the file that the items
    begin with. What was read from those is matched by its place; opaque entries, which have no
    room for one, by their bytes alone, since their line may be readable by now. The rest (of
    versions before the file was rewritten, or written here and exported) is matched by id, and
    where it had none, by what was said when.
    """
    placed, others = _divided(entries, parts)
    known = _matched_by_place(items, placed) | _matched_by_bytes(items, others)
    remaining = {entry.id for entry in others if entry.kind != OPAQUE}
    usable = {alias: entry for alias, entry in ids.items() if entry in remaining}
    known = _matched_by_id(items, usable) | known
    return known | _matched_by_content(items, others, known)


def _divided(entries: Iterable[Entry], parts: Collection[int]) -> tuple[list[Entry], list[Entry]]:
    """The entries that were read from `parts`, and the others."""
    placed: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        source = source_of(entry.body)
        (others if source is None or source.part not in parts else placed).append(entry)
    return placed, others


def _matched_by_place(items: Sequence[Item], entries: Iterable[Entry]) -> dict[int, EntryId]:
    places: dict[tuple[int, int], EntryId] = {}
    seen: dict[int, int] = {}
    for entry in entries:
        source = source_of(entry.body)
        if source is None or not source.length:  # without length: where an import left the leaf
            continue
        ordinal = seen.get(source.offset, 0)
        seen[source.offset] = ordinal + 1
        places[source.offset, ordinal] = entry.id
    found = ((n, places.get((item.offset, item.ordinal))) for n, item in enumerate(items))
    return {position: entry for position, entry in found if entry is not None}


def _matched_by_bytes(items: Sequence[Item], entries: Iterable[Entry]) -> dict[int, EntryId]:
    """Opaque item -> opaque entry with the same body; each entry once, in order."""
    waiting: dict[bytes, list[EntryId]] = {}
    for entry in reversed([entry for entry in entries if entry.kind == OPAQUE]):
        waiting.setdefault(entry.body, []).append(entry.id)
    found: dict[int, EntryId] = {}
    for position, item in enumerate(items):
        candidates = waiting.get(item.body) if isinstance(item.body, bytes) else None
        if candidates:
            found[position] = candidates.pop()
    return found


def _matched_by_id(items: Sequence[Item], ids: Mapping[str, EntryId]) -> dict[int, EntryId]:
    found = ((n, ids.get(item.alias or "")) for n, item in enumerate(items) if item.ordinal == 0)
    return {position: entry for position, entry in found if entry is not None}


Signature = tuple[str, int, bytes]


def _matched_by_content(
    items: Sequence[Item], entries: Iterable[Entry], known: Mapping[int, EntryId]
) -> dict[int, EntryId]:
    """Item -> an imported entry that says the same at the same time; each entry once, in order."""
    taken = set(known.values())
    waiting: dict[Signature, list[EntryId]] = {}
    for entry in reversed(list(entries)):
        if entry.id not in taken and source_of(entry.body) is not None:
            signature = (entry.kind, entry.at, _said(entry.kind, without_source(entry.body)))
            waiting.setdefault(signature, []).append(entry.id)
    found: dict[int, EntryId] = {}
    for position, item in enumerate(items):
        if position in known:
            continue
        said = body_without_source(item, ()) if isinstance(item.body, Message) else b""
        candidates = waiting.get((item.kind, item.at or 0, _said(item.kind, said)))
        if candidates:
            found[position] = candidates.pop()
    return found


def _said(kind: str, body: bytes) -> bytes:
    """What of a body takes part in a signature: only messages, whose bodies name no entries."""
    return hashlib.sha256(body).digest() if kind == MESSAGE else b""
