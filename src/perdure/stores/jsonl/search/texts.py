"""The entries of a session as they are indexed, and back: a text's words, its keys, its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from perdure.errors import SessionNotFound
from perdure.session.ids import EntryId
from perdure.session.info import StreamHeader
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.pages import SESSION, role_key, tool_key
from perdure.session.search.searchable import KINDS
from perdure.session.search.words import terms
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.reads import tree_seq
from perdure.stores.jsonl.rows import Row, lost_row
from perdure.stores.jsonl.search.catalogue import Known, Written
from perdure.stores.jsonl.search.part_file import EVERYWHERE, NOWHERE, Place
from perdure.stores.jsonl.search.positions import Places
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.scan import Found, found_entry

_KINDS = frozenset(KINDS)


class IndexedText(NamedTuple):
    """A text, and where it stands."""

    text: Text
    place: Place


def found_in(log: Log, seqs: Iterable[int], places: Places) -> Iterator[Found]:
    """Those of the entries `seqs` that can be found.

    Raises: SessionNotFound when the file is gone; StoreUnavailable.
    """
    wanted = [seq for seq in seqs if log.rows[seq].kind in _KINDS]
    for entry in entries_of(log, wanted):
        found = found_entry(places.of(entry.seq), entry, log.header.subject)
        if found is not None:
            yield found


def is_enough(log: Tail) -> bool:
    """Whether what stands before `log` need not be known to index what it holds."""
    rows = log.rows[log.base :]
    return not any(row.kind in _KINDS and row.about is not None for row in rows)


def indexed_text(log: Log, found: Found, number: int) -> IndexedText:
    """`found` as it is indexed, of the session that has `number`. Raises: ValueError for titles."""
    if found.entry is None:
        raise ValueError("a title stands in no line of its own")
    filters = [session_key(number), role_key(found.what.role), *map(tool_key, found.what.tools)]
    seq = found.entry.seq
    text = Text(found.position, found.at, terms(found.what.text), filters, seq + 1)
    return IndexedText(text, _place(number, seq, target_of(log, found), log.rows[seq]))


def _place(number: int, seq: int, target: int, row: Row) -> Place:
    return Place(
        number,
        seq,
        target,
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
    """The entry that has to be on a branch for `found` to be on it, as ``Place`` says it."""
    if found.target is None:
        return EVERYWHERE
    seq = tree_seq(log, found.target)
    return NOWHERE if seq is None else seq


def found_at(shelf: SessionIndex, known: Known, written: Written) -> Found | None:
    """What is `written` in the file of a session; None when it no longer exists.

    Only that line is read: of what it refers to nothing is known, and nothing is shown.
    """
    place = written.place
    log = Log(shelf.folder.path / known.name, shelf.codec)
    log.header = StreamHeader(known.stream, known.created_at)
    row = Row(
        place.offset,
        place.size,
        place.kind,
        place.v,
        "side" if place.is_side else "tree",
        written.at,
        is_ours=place.is_ours,
        part=place.part,
        about=None if place.about is None else EntryId(place.about),
    )
    log.rows = [lost_row(None)] * place.seq + [row]
    with suppress(SessionNotFound):  # erased meanwhile
        for entry in entries_of(log, (place.seq,)):
            return found_entry(written.position, entry, None)
    return None


# ---------------------------------------------------------------- what stands for the filters


def session_key(number: int) -> str:
    """What stands for the session that has `number`."""
    return f"{SESSION}{number}"
