"""The import originals of a session: which files it was read from, and what of a file is new.

An original is a file as it was, kept in one or more parts; a part that begins at offset 0
begins a new version of the file (one that was rewritten), another continues the version before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from perdure.interop.formats.sources.content import Content, digest_of
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.notes import ImportSource


class OriginalPart(msgspec.Struct, frozen=True):
    """A part of an original, with the ``import_source`` entry that keeps it."""

    entry: Entry
    source: ImportSource


class Original(msgspec.Struct, frozen=True):
    """One version of a file, in parts that follow each other without a gap."""

    parts: tuple[OriginalPart, ...]

    @property
    def seqs(self) -> frozenset[int]:
        """The seqs of its parts."""
        return frozenset(part.entry.seq for part in self.parts)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Where in the file each part begins, and its seq."""
        return tuple((part.source.offset, part.entry.seq) for part in self.parts)

    @property
    def is_cut_off(self) -> bool:
        """More of the file was to follow, but never came."""
        return self.parts[-1].source.has_more

    @property
    def byte_length(self) -> int:
        """How long the file was."""
        last = self.parts[-1].source
        return last.offset + last.length


class FileRelation(Enum):
    """How a file stands to an original."""

    SAME = "same"
    OLDER = "older"
    GROWN = "grown"
    OTHER = "other"


def originals_of(notes: Iterable[Entry]) -> list[Original]:
    """The versions kept by the ``import_source`` entries among `notes`, oldest first."""
    versions: list[list[OriginalPart]] = []
    for entry in notes:
        source = readable(entry)
        if not isinstance(source, ImportSource):
            continue
        if source.offset == 0 or not versions:
            versions.append([])
        versions[-1].append(OriginalPart(entry, source))
    return [Original(tuple(parts)) for parts in versions]


def content_of(originals: Sequence[Original], blobs: Mapping[str, bytes]) -> bytes | None:
    """The newest of `originals`; None where there is none, or `blobs` lack a part of it."""
    names = [part.source.blob for part in originals[-1].parts] if originals else []
    if not names or any(name not in blobs for name in names):
        return None
    return b"".join(blobs[name] for name in names)


def relation_of(content: Content, original: Original) -> FileRelation:
    """How the file `content` stands to `original`, without looking at what is kept of it.

    Shape: OLDER only says that it could be; what is kept of the part it ends in tells.
    """
    for part in original.parts:
        begin, end = part.source.offset, part.source.offset + part.source.length
        if end > content.length:
            return FileRelation.OLDER
        if digest_of(content, begin, end) != part.source.blob:
            return FileRelation.OTHER
    return FileRelation.SAME if original.byte_length == content.length else FileRelation.GROWN
