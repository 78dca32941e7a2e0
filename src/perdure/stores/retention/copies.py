"""List the known places where copies of erased data may remain, for a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.notes import ImportSource, SessionExported
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, Copy, ErasedSession

TELLING = (SessionExported.kind, ImportSource.kind)
"""Kinds of notes that name files outside of the store."""


def outside(notes: Iterable[Entry]) -> Iterator[Copy]:
    """Yield the files outside of the store that `notes` of an erased session refer to."""
    found: dict[tuple[str, str], Copy] = {}
    for note in notes:
        body = readable(note)
        if isinstance(body, SessionExported):
            copy = Copy("export", f"{body.path} ({body.format})", note.at, note.stream)
        elif isinstance(body, ImportSource):
            copy = Copy(
                "original", f"the file it was imported from, {body.name}", None, note.stream
            )
        else:
            continue
        found.setdefault((copy.what, note.stream), copy)
    yield from found.values()


def without_file_names(certificate: Certificate) -> Certificate:
    """Return `certificate` as stored: without file names, which may reveal erased data."""
    found = tuple(
        Copy(copy.kind, _UNNAMED[copy.kind], copy.at, copy.session)
        if copy.kind in _UNNAMED
        else copy
        for copy in certificate.copies
    )
    return msgspec.structs.replace(certificate, copies=found)


def with_file_names(kept: Certificate, begun: Certificate) -> Certificate:
    """Return `kept` with the file names from `begun`, which is the certificate's first version."""
    own = frozenset(without_file_names(begun).copies)
    added = tuple(copy for copy in kept.copies if copy not in own)
    return msgspec.structs.replace(kept, copies=(*begun.copies, *added))


_UNNAMED = {
    "original": "the file it was imported from",
    "export": "a file it was exported to",
}
"""The texts that replace the file names of `outside` in a stored certificate, by kind."""


def fork_copies(sessions: Iterable[ErasedSession], copies: Iterable[StreamId]) -> Iterator[Copy]:
    """Yield the forks and copies that keep erased data because the request keeps forks."""
    for fork in dict.fromkeys(fork for each in sessions for fork in each.kept_for):
        yield Copy("fork", "it shares entries, which were kept for it", None, fork)
    for copy in copies:
        yield Copy("fork", "it holds copies of entries as its own", None, copy)


def backed_up(backups: Iterable[Backup]) -> tuple[Copy, ...]:
    """Return the known backups of the store."""
    return tuple(Copy("backup", f"the backup {each.path}", each.at) for each in backups)


def of_files(what: str) -> tuple[Copy, ...]:
    """Return the places where data of a file-based store may remain; `what` names the files."""
    return (
        Copy("backup", f"backups and copies of {what} made before; erase in them, or delete them"),
        Copy("device", "a drive or file system that keeps older versions of blocks it overwrites"),
    )
