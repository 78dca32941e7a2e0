"""Find the stored copies of a session's imported files, and compare a file with them.

An original is an unchanged copy of a file, stored in one or more parts. A part at offset 0 begins a
new version of the file, which was rewritten; a part at any other offset continues the previous
version.
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
    """One part of the stored copy of a file, with the ``import_source`` entry that refers to it."""

    entry: Entry
    source: ImportSource


class Original(msgspec.Struct, frozen=True):
    """The stored copy of one version of a file, in consecutive parts without a gap."""

    parts: tuple[OriginalPart, ...]

    @property
    def format(self) -> str:
        """The format of the file."""
        return self.parts[0].source.format

    @property
    def seqs(self) -> frozenset[int]:
        """The seqs of the ``import_source`` entries that refer to the parts."""
        return frozenset(part.entry.seq for part in self.parts)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The offset of each part in the file, and the seq of the part's entry."""
        return tuple((part.source.offset, part.entry.seq) for part in self.parts)

    @property
    def is_cut_off(self) -> bool:
        """Whether the end of the file is missing, because an import was interrupted."""
        return self.parts[-1].source.has_more

    @property
    def byte_length(self) -> int:
        """The length of the file."""
        last = self.parts[-1].source
        return last.offset + last.length


class FileRelation(Enum):
    """How the content of a file relates to an original."""

    SAME = "same"
    OLDER = "older"
    GROWN = "grown"
    OTHER = "other"


def originals_of(notes: Iterable[Entry], format: str | None = None) -> list[Original]:
    """Return the versions stored by the ``import_source`` entries among `notes`, oldest first.

    If `format` is given, return only files of that format. A session that was continued in another
    program has files of several formats.
    """
    versions: list[list[OriginalPart]] = []
    for entry in notes:
        source = readable(entry)
        if not isinstance(source, ImportSource) or format not in (None, source.format):
            continue
        if source.offset == 0 or not versions:
            versions.append([])
        versions[-1].append(OriginalPart(entry, source))
    return [Original(tuple(parts)) for parts in versions]


def content_of(originals: Sequence[Original], blobs: Mapping[str, bytes]) -> bytes | None:
    """Return the content of the newest of `originals`.

    Return None if there is no original or if one of its blobs is missing.
    """
    names = [part.source.blob for part in originals[-1].parts] if originals else []
    if not names or any(name not in blobs for name in names):
        return None
    return b"".join(blobs[name] for name in names)


def relation_of(content: Content, original: Original) -> FileRelation:
    """Return the relation of the file `content` to `original`, without reading the stored parts.

    Shape: OLDER only means that the file might be the beginning of `original`. To be sure, compare
    the file with the stored part in which the file ends.
    """
    for part in original.parts:
        begin, end = part.source.offset, part.source.offset + part.source.length
        if end > content.length:
            return FileRelation.OLDER
        if digest_of(content, begin, end) != part.source.blob:
            return FileRelation.OTHER
    return FileRelation.SAME if original.byte_length == content.length else FileRelation.GROWN
