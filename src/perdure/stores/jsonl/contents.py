"""Read entries of a session file with their bodies, from the positions in the index.

An unreadable entry is returned as an ``opaque`` entry, so that other entries remain readable. The
body of the opaque entry contains the bytes that the file has for the entry. ``verify`` reports
unreadable entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO

import msgspec

from perdure.codecs.media import Media
from perdure.errors import SessionNotFound, StoreUnavailable
from perdure.session.entries import Entry
from perdure.session.ids import blob_hash
from perdure.session.kinds import OPAQUE
from perdure.stores.jsonl.bodies import restore_body
from perdure.stores.jsonl.disk.sidefiles import blob_of
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.index_state import entry_at, foreign_entry, tool_digest
from perdure.stores.jsonl.lines import Ours, envelope_of, fields_of
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.regular_files import open_to_read
from perdure.stores.verification import StoredEntry


def entries_of(
    log: Log, seqs: Iterable[int], is_wanted: Callable[[bytes], bool] | None = None
) -> list[Entry]:
    """Return the entries with these `seqs`, in this order, if `is_wanted` accepts their lines.

    Raises: SessionNotFound if the file was removed.
    """
    return [
        _entry(log, seq, content)
        for seq, content in _contents(log, seqs)
        if is_wanted is None or is_wanted(content)
    ]


def stored_of(log: Log, seqs: Iterable[int] | None = None) -> Iterator[StoredEntry]:
    """Yield each entry with its salt and its digest; an entry of another program has no salt.

    With `seqs`, yield only the entries with these seqs.
    Raises: SessionNotFound if the file was removed.
    """
    for seq, content in _contents(log, range(len(log.rows)) if seqs is None else seqs):
        entry, ours = _entry(log, seq, content), _ours(content)
        if log.rows[seq].is_ours:
            digest = ours.digest if ours else b""
            yield StoredEntry(entry, ours.salt if ours else None, digest)
        else:
            digest = tool_digest(content, log.rows[seq].part)
            yield StoredEntry(entry, None, digest, is_foreign=True)


def media_of(log: Log, digest: str) -> bytes | None:
    """Return the content with the hash `digest` from a line of another program; None if missing."""
    seq = log.media.get(digest)
    if seq is None or seq >= len(log.rows):
        return None
    with suppress(SessionNotFound):
        for _, content in _contents(log, (seq,)):
            media = Media()
            log.codec.said(fields_of(content) or {}, media)
            return next((each for each in media.blobs if blob_hash(each) == digest), None)
    return None


def _contents(log: Log, seqs: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    try:
        with open_to_read(log.path) as file:
            for seq in seqs:
                yield seq, _content(log, seq, file)
    except FileNotFoundError:  # erased by another process after its index was updated
        raise SessionNotFound(log.header.id) from None
    except OSError as error:
        raise StoreUnavailable(str(log.path), str(error)) from error


def _content(log: Log, seq: int, file: BinaryIO) -> bytes:
    row = log.rows[seq]
    file.seek(row.offset)
    return file.read(row.size)


def _entry(log: Log, seq: int, content: bytes) -> Entry:
    row = log.rows[seq]
    if not row.is_ours:
        return entry_at(log, seq, _foreign_body(log, seq, content))
    ours = _ours(content)
    body = None if ours is None else restore_body(content.split(b"\n"), ours, log.codec)
    entry = entry_at(log, seq, content if body is None else body)
    return entry if body is not None else msgspec.structs.replace(entry, kind=OPAQUE, v=1)


def _ours(content: bytes) -> Ours | None:
    envelope = envelope_of(content.rpartition(b"\n")[2]) if content else None
    return None if envelope is None else envelope.ours


def _foreign_body(log: Log, seq: int, content: bytes) -> bytes:
    row = log.rows[seq]
    media = Media()
    said = log.codec.said(fields_of(content) or {}, media)
    for each in media.blobs:
        log.media[blob_hash(each)] = seq
    parent = row.parent if row.lane == "tree" else row.anchor
    return foreign_entry(log, said, parent, row.part).body


def content_named(shelf: SessionIndex, digest: str) -> bytes | None:
    """Return the content with the hash `digest`, from its file or a session indexed in memory."""
    content = blob_of(shelf.folder, digest)
    for log in () if content is not None else shelf.logs():
        content = content or media_of(log, digest)
    return content
