"""The searchable texts of a session, and the locations of their lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from perdure.errors import SessionNotFound
from perdure.session.ids import EntryId
from perdure.session.info import StreamHeader
from perdure.session.search.searchable import KINDS
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.reads import tree_seq
from perdure.stores.jsonl.rows import Row, lost_row
from perdure.stores.jsonl.search.file_table import EVERYWHERE, NOWHERE, Known, Place
from perdure.stores.jsonl.search.positions import Places
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.scan import Found, found_entry

_KINDS = frozenset(KINDS)


def found_in(log: Log, seqs: Iterable[int], places: Places) -> Iterator[Found]:
    """Yield the searchable texts among the entries `seqs`.

    Raises: SessionNotFound if the file was removed; StoreUnavailable.
    """
    wanted = [seq for seq in seqs if log.rows[seq].kind in _KINDS]
    for entry in entries_of(log, wanted):
        found = found_entry(places.of(entry.seq), entry, log.header.subject)
        if found is not None:
            yield found


def is_enough(log: Tail) -> bool:
    """Return whether the end of a session can be indexed without reading its earlier entries."""
    rows = log.rows[log.base :]
    return not any(row.kind in _KINDS and row.about is not None for row in rows)


def place_in(log: Log, seq: int, number: int) -> Place:
    """Return the place of the entry `seq` of the session with the number `number`."""
    row = log.rows[seq]
    target = log.id_of(seq) if row.lane == "tree" else row.about
    return Place(
        number,
        seq,
        _target_seq(log, target),
        row.at,
        row.offset,
        row.size,
        row.kind,
        row.v,
        row.lane == "side",
        row.is_ours,
        row.part,
        row.about,
    )


def target_of(log: Log, found: Found) -> int:
    """Return the target of `found`; ``Place`` explains targets."""
    return _target_seq(log, found.target)


def _target_seq(log: Log, target: EntryId | None) -> int:
    if target is None:
        return EVERYWHERE
    seq = tree_seq(log, target)
    return NOWHERE if seq is None else seq


def found_at(sessions: SessionIndex, known: Known, position: int, place: Place) -> Found | None:
    """Return the text at `place` in the file of `known`; None if the text no longer exists.

    The call reads only the line of the text, without resolving references, because hits do not show
    references.
    Raises: ValueError if the file cannot contain `place`.
    """
    if place.seq >= 2 * known.size or place.offset + place.size > known.size:
        raise ValueError("the search index names a place beyond the end of a file")
    log = Log(sessions.folder.path / known.name, sessions.codec)
    log.header = StreamHeader(known.stream, known.created_at, subject=known.subject)
    row = Row(
        place.offset,
        place.size,
        place.kind,
        place.v,
        "side" if place.is_side else "tree",
        place.at,
        is_ours=bool(place.is_ours),
        part=place.part,
        about=None if place.about is None else EntryId(place.about),
    )
    log.rows = [lost_row(None)] * place.seq + [row]
    with suppress(SessionNotFound):  # erased meanwhile
        for entry in entries_of(log, (place.seq,)):
            return found_entry(position, entry, known.subject)
    return None
