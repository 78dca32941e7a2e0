"""Whether the index of a folder says what its files say: the part of ``verify`` about search.

Each part is compared with what would be built from the files. What the index does not know yet, or
knows to be gone, the next search puts right, and is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress

from perdure.errors import SessionNotFound
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.comparison import differing
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.searchable import KINDS
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.search.branch_members import BranchMap
from perdure.stores.jsonl.search.catalogue import Catalogue, Known, Piece, place_of_row
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.part_file import PartGone, Place, Whole
from perdure.stores.jsonl.search.positions import Places
from perdure.stores.jsonl.search.scan import words_of_title
from perdure.stores.jsonl.search.texts import found_in, indexed_text
from perdure.stores.protocol import Problem
from perdure.stores.regular_files import status_of
from perdure.stores.scan import Found
from perdure.stores.verification import Steps

_REMEDY = "Store.reindex rebuilds the index"
_NOT_AS_IN_FILE = f"it differs from its file in the search index; {_REMEDY}"


def index_problems(index: Index, steps: Steps) -> Iterator[Problem]:
    """Every difference between the index and the files, as far as it goes."""
    if index.files.is_damaged():
        yield Problem(None, None, f"the list of what the search index holds is damaged; {_REMEDY}")
    catalogue = index.catalogue()
    if catalogue.sessions:
        yield from _Check(index, catalogue, steps).problems()


class _Check:
    """One comparison of an index with its files."""

    def __init__(self, index: Index, catalogue: Catalogue, steps: Steps) -> None:
        self._index = index
        self._catalogue = catalogue
        self._steps = steps
        self._seen: defaultdict[int, set[int]] = defaultdict(set)
        self._spans = index.feed.by_stream()
        self._stale = {
            known.number
            for known in catalogue.sessions
            if known.stream and self._log_of(known) is None
        }

    def _log_of(self, known: Known) -> Log | None:
        """The session, if what was indexed of it is there as it was."""
        path = self._index.shelf.folder.path / known.name
        try:
            is_there = known.begins(path, Stamp.of(status_of(path)))
        except OSError:
            return None
        log = self._index.shelf.log(known.stream) if is_there else None
        if log is None or log.path != path or len(log.rows) < known.count:
            return None
        is_same = not known.count or place_of_row(log.rows[known.count - 1]) == known.last
        return log if is_same else None

    def problems(self) -> Iterator[Problem]:
        """Every difference."""
        for piece in self._catalogue.pieces:
            yield from self._of_piece(piece)
            self._steps.add(piece.texts)
        for long in self._catalogue.long:
            self._seen[long.place.session].add(long.place.seq)
        for known in self._catalogue.sessions:
            if known.stream and known.number not in self._stale:
                yield from self._of_session(known)

    def _of_piece(self, piece: Piece) -> Iterator[Problem]:
        files = self._index.files
        try:
            whole = files.whole(piece)
            wrong = sorted(self._wrong(whole), key=lambda each: (each.session, each.seq))
            is_as_written = files.is_as_written(piece, whole)
        except (*DAMAGE, OSError, PartGone) as error:
            yield Problem(None, None, f"the search index cannot be read ({error}); {_REMEDY}")
            return
        for place in wrong:
            known = self._catalogue.by_number.get(place.session)
            yield Problem(None if known is None else known.stream, place.seq, _NOT_AS_IN_FILE)
        if not is_as_written:
            yield Problem(None, None, f"the search index is not as it was written; {_REMEDY}")

    def _wrong(self, whole: Whole) -> Iterator[Place]:
        """The places of texts that are not those of the files."""
        expected: dict[int, Text] = {}
        by_position = {
            said.position: place for said, place in zip(whole.part.said, whole.places, strict=True)
        }
        for number, places in _by_session(whole).items():
            self._seen[number].update(place.seq for place in places)
            known = self._catalogue.by_number.get(number)
            log = None if known is None else self._log_of(known)
            if known is None or log is None:
                continue
            where = Places(self._spans[log.header.id], log.head, 0)
            asked = [place.seq for place in places if place.seq < len(log.rows)]
            for found in _still(log, asked, where):
                text, place = indexed_text(log, found, number)
                if by_position.get(text.position) == place:
                    expected[text.position] = text
        wrong = (by_position[position] for position in differing(whole.part, expected))
        yield from (place for place in wrong if place.session not in self._stale)

    def _of_session(self, known: Known) -> Iterator[Problem]:
        log = self._log_of(known)
        if log is None:
            return
        seen = self._seen[known.number]
        rows = enumerate(log.rows[: known.count])
        missed = [seq for seq, row in rows if row.kind in KINDS and seq not in seen]
        for found in _still(log, missed, Places([], 0, 0)):
            if found.entry is not None:
                yield Problem(known.stream, found.entry.seq, _NOT_AS_IN_FILE)
        if known.title != words_of_title(log.header):
            text = f"its title differs in the search index; {_REMEDY}"
            yield Problem(known.stream, None, text)
        if known.branching != BranchMap().grown(log.rows, 0, known.count):
            text = f"its branches differ in the search index; {_REMEDY}"
            yield Problem(known.stream, None, text)


def _still(log: Log, seqs: Iterable[int], places: Places) -> Iterator[Found]:
    with suppress(SessionNotFound):  # erased meanwhile
        yield from found_in(log, seqs, places)


def _by_session(whole: Whole) -> dict[int, list[Place]]:
    found: defaultdict[int, list[Place]] = defaultdict(list)
    for place in whole.places:
        found[place.session].append(place)
    return found
