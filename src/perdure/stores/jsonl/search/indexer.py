"""How the index of a folder follows its files: what is behind is read, made a part, and put in.

A step is read and made while others write. Then it is put in, unless somebody changed the index
meanwhile, or a file that it was read from is not what it was. Parts that are small are made one
with what comes next, so there are few of them. Nothing is in the index that is not in the files:
who takes a session away holds the lock of the index until its file is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from perdure.errors import SessionNotFound, StoreFull
from perdure.session.ids import StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import make_part, texts_in
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.search.catalogue import Catalogue, Known, Piece, Written, place_of_row
from perdure.stores.jsonl.search.files import IndexFiles
from perdure.stores.jsonl.search.part_file import PartGone, Whole
from perdure.stores.jsonl.search.scan import FolderScan, StaleSession, known_after, scan_folder
from perdure.stores.jsonl.search.texts import IndexedText, found_in, indexed_text
from perdure.stores.jsonl.session_index import SessionIndex

MOST_SMALL = 8
"""So many parts may be small; they are made one however small that is."""

_ROWS = 64
"""Entries that are read at once, while nothing else of the handle runs."""


class Index:
    """The index of one folder, for one thread at a time."""

    def __init__(self, shelf: SessionIndex, feed: Feed) -> None:
        self.shelf = shelf
        self.feed = feed
        self.files = IndexFiles(shelf.folder, shelf.codec.name)

    def catalogue(self) -> Catalogue:
        """What there is; an empty one where that is of no use any more."""
        found = self.files.catalogue()
        self.feed.refresh()
        if found is None or not self.feed.goes_on_from(found.feed):
            return Catalogue(self.shelf.codec.name)
        return found

    def survey(self) -> tuple[Catalogue, FolderScan]:
        """What there is, and what the files hold beside it. Raises: as `surveyed`."""
        catalogue = self.catalogue()
        return catalogue, scan_folder(self.shelf, self.feed, catalogue)

    def clear(self) -> None:
        """Remove all of it, also a damaged one: the next search makes it anew.

        Raises: StoreReadOnly, StoreUnavailable.
        """
        with self.files.hold_lock():
            self.files.sweep(None)

    def drop_lost(self) -> None:
        """Remove all of it if it has not got the parts that it names.

        Raises: StoreReadOnly, StoreUnavailable.
        """
        with self.files.hold_lock():
            catalogue = self.files.catalogue()
            if catalogue is None or not all(map(self.files.has, catalogue.pieces)):
                self.files.sweep(None)

    def remove(self, streams: Collection[StreamId], remove: Callable[[], None]) -> None:
        """Take the sessions out, with every byte of their words, and then `remove` their files.

        Of a damaged index nothing is left, nor of one by other rules, nor where the disk is too
        full to write what would be left.
        Raises: StoreReadOnly, StoreUnavailable.
        """
        with self.files.hold_lock():
            if self.files.path.is_dir():
                self._forget(streams)
            remove()

    def forget(self, streams: Collection[StreamId]) -> None:
        """Take the sessions out, and what no file holds any more: a tool's user deleted it.

        Raises: as `remove`.
        """
        with self.files.hold_lock():
            if self.files.path.is_dir():
                self._forget(streams, is_thorough=True)

    def _stale_numbers(self, catalogue: Catalogue) -> set[int]:
        """The numbers of the sessions that are not in their files as they were indexed."""
        folder = self.shelf.folder.path
        indexed = (known for known in catalogue.sessions if known.trail)
        return {known.number for known in indexed if not known.stands_in(folder / known.name)}

    def _forget(self, streams: Collection[StreamId], *, is_thorough: bool = False) -> None:
        catalogue = self.files.catalogue()
        numbers = set[int]() if catalogue is None else catalogue.of(streams)
        try:
            if catalogue is not None and is_thorough:
                numbers |= self._stale_numbers(catalogue)
            after = None if catalogue is None else without(self.files, catalogue, numbers)
            if after is None or not numbers:
                self.files.sweep(after)
            else:
                self.files.put(after)
        except (*DAMAGE, OSError, PartGone, StoreFull):
            self.files.sweep(None)


def without(files: IndexFiles, catalogue: Catalogue, numbers: Collection[int]) -> Catalogue:
    """`catalogue` without the sessions that have `numbers`; new parts have the other texts.

    Raises: what `IndexFiles.whole` does; StoreReadOnly, StoreFull, StoreUnavailable.
    """
    if not numbers:
        return catalogue
    gone = frozenset(numbers)
    pieces: list[Piece] = []
    for piece in catalogue.pieces:
        if gone.isdisjoint(piece.sessions):
            pieces.append(piece)
            continue
        left = [each for each in texts_of(files, piece) if each.place.session not in gone]
        if left:
            pieces.append(files.add(build_part(left)))
    return msgspec.structs.replace(
        catalogue,
        sessions=tuple([each for each in catalogue.sessions if each.number not in gone]),
        pieces=tuple(pieces),
        long=tuple([each for each in catalogue.long if each.place.session not in gone]),
    )


def texts_of(files: IndexFiles, piece: Piece) -> list[IndexedText]:
    """The texts of a part, out of their codes. Raises: what `IndexFiles.whole` does."""
    whole = files.whole(piece)
    return [IndexedText(*each) for each in zip(texts_in(whole.part), whole.places, strict=True)]


def build_part(texts: Iterable[IndexedText]) -> Whole:
    """The part of `texts`. Takes some tenths of a second."""
    ordered = sorted(texts, key=lambda each: each.text.position)
    return Whole(make_part(each.text for each in ordered), tuple([each.place for each in ordered]))


# ---------------------------------------------------------------- a step


class Step:
    """What is to be put into the index next: `read` it, `make` it, `put` it in.

    `read` is done when it gives nothing more; `make` may run on another thread.
    """

    def __init__(self, index: Index, catalogue: Catalogue, survey: FolderScan) -> None:
        self._index = index
        self._before = catalogue
        self._survey = survey
        self._texts: list[IndexedText] = []
        self._long: list[Written] = []
        self._words = self._bytes = 0
        self._advanced: dict[int, Known] = {}
        self._merged: list[Piece] = []
        self._whole: Whole | None = None
        self.behind = survey.count
        """How much is to be indexed, with this step and after it."""
        self.is_cleaning = bool(survey.stale)
        """It takes out what is not there any more."""
        self.taken = 0
        """How much of that was put in."""
        self._is_void = self._has_no_room = False

    def read(self) -> Iterator[int]:
        """Read what is behind, some entries at a time. Raises: StoreUnavailable."""
        for behind in sorted(self._survey.behind, key=lambda each: each.places.of(each.end - 1)):
            yield from self._of_session(behind)
            if self._is_full():
                return
        self._take_small()

    def make(self) -> None:
        """Make the part."""
        if self._texts:
            self._whole = build_part(self._texts)

    def put(self) -> int:
        """Put it in, unless something changed meanwhile; how much of what was behind it was.

        Raises: StoreReadOnly, StoreFull, StoreUnavailable; what `IndexFiles.whole` does.
        """
        files, survey = self._index.files, self._survey
        with files.hold_lock():
            if self._is_void or self._index.catalogue() != self._before or not self._stands():
                return 0
            after = without(files, self._before, survey.stale)
            taken = {piece.name for piece in self._merged}
            pieces = [piece for piece in after.pieces if piece.name not in taken]
            if self._whole is not None:
                pieces.append(files.add(self._whole))
            behind = {each.known.number: each.known for each in survey.behind} | self._advanced
            sessions = [behind.get(each.number, each) for each in survey.sessions]
            is_whole = all(each.is_whole for each in sessions)
            position = 0 if survey.stale else self._before.position
            files.put(
                msgspec.structs.replace(
                    after,
                    feed=self._index.feed.mark(),
                    position=survey.position if is_whole else position,
                    numbers=survey.numbers,
                    sessions=(*sessions, *survey.others),
                    pieces=tuple(pieces),
                    long=(*after.long, *self._long),
                )
            )
        counts = {each.known.number: each.known.count for each in survey.behind}
        return sum(1 + each.count - counts[each.number] for each in self._advanced.values())

    def _of_session(self, behind: StaleSession) -> Iterator[int]:
        try:
            yield from self._all_of_session(behind)
        except SessionNotFound:  # erased meanwhile
            self._is_void = True

    def _all_of_session(self, behind: StaleSession) -> Iterator[int]:
        first = count = behind.known.count
        last = behind.known.last
        while (log := self._log(behind, count, last)) is not None:
            if count == behind.end or self._is_full():
                self._advanced[behind.known.number] = known_after(behind, log, count)
                return
            upto = min(count + _ROWS, behind.end)
            count = self._take(behind, log, count, upto)
            last = place_of_row(log.rows[count - 1]) if count else last
            yield count - first
        self._is_void = True  # it was taken away, or rewritten: the next survey says it

    def _log(self, behind: StaleSession, count: int, last: tuple[int, int, int]) -> Log | None:
        """The session's index, if its first `count` entries are those that were read."""
        log = behind.open_log(self._index.shelf)
        if log is None or len(log.rows) < behind.end:
            return None
        is_same = not count or place_of_row(log.rows[count - 1]) == last
        return log if is_same or isinstance(log, Tail) else None

    def _take(self, behind: StaleSession, log: Log, first: int, upto: int) -> int:
        """Take the entries from `first`; which is the first that has no room."""
        for found in found_in(log, range(first, upto), behind.places):
            new = indexed_text(log, found, behind.known.number)
            words = len(new.text.words)
            if words > MOST_WORDS:
                self._long.append(Written(new.text.position, new.text.at, new.place))
                continue
            if self._texts and self._words + words > MOST_WORDS:
                self._has_no_room = True
                return new.place.seq
            self._texts.append(new)
            self._words += words
            self._bytes += new.place.size
            if self._is_full():
                return new.place.seq + 1
        return upto

    def _is_full(self) -> bool:
        return (
            self._has_no_room
            or len(self._texts) >= sizes.BATCH_ROWS
            or self._bytes > sizes.BATCH_BYTES
        )

    def _take_small(self) -> None:
        """Take what is in small parts, if it is enough with this, or there are too many."""
        small = [each for each in self._before.pieces if _is_small(each)]
        small = [each for each in small if self._survey.stale.isdisjoint(each.sessions)]
        texts = len(self._texts) + sum(each.texts for each in small)
        words = self._words + sum(each.words for each in small)
        is_enough = sizes.is_enough(texts, words) or len(small) >= MOST_SMALL
        if self._texts and is_enough and texts <= sizes.BATCH_ROWS and words <= MOST_WORDS:
            for piece in small:
                self._texts += texts_of(self._index.files, piece)
            self._merged = small

    def _stands(self) -> bool:
        """What was read is in the files."""
        found = ((each.path, self._advanced.get(each.known.number)) for each in self._survey.behind)
        return all(known is None or known.stands_in(path) for path, known in found)


def _is_small(piece: Piece) -> bool:
    return piece.texts < sizes.MOST_LOOSE and piece.words < sizes.MOST_LOOSE_WORDS
