"""Update the index of a folder from its files: read new entries, build index parts, store them.

The update runs in steps. Other processes can write while a step reads files and builds its part of
the index. The built part is stored only if the index and the files that were read have not changed
meanwhile. The index contains only texts of existing files: a removal holds the lock of the index
until the session's file is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from perdure.errors import SessionNotFound, StoreError, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.search.file_table import (
    INDEXED,
    Catalogue,
    Known,
    Place,
    place_of_row,
    positions_of,
    put_feed_mark,
    put_files,
    put_places,
    remove_files,
    remove_places,
)
from perdure.stores.jsonl.search.index_file import IndexFile, IndexTables, IndexUnusable
from perdure.stores.jsonl.search.log import FolderLog
from perdure.stores.jsonl.search.scan import FolderScan, StaleSession, known_after, scan_folder
from perdure.stores.jsonl.search.texts import found_in, place_in
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.scan import Found, found_title
from perdure.stores.search import indexer
from perdure.stores.search.index_keys import text_of
from perdure.stores.search.rows import run_now
from perdure.stores.search.sqlite_tables import SqliteReader, SqliteWriter, stored_mark

_ROWS = 64
"""Number of entries that are read at a time; no other call of the handle runs meanwhile."""

_DROPS = 10
"""Number of times that one step removes texts that are no longer in the files."""


class Index:
    """Updates the index of one folder; only one thread at a time may use it."""

    def __init__(self, sessions: SessionIndex, feed: Feed) -> None:
        self.sessions = sessions
        self.feed = feed
        self.file = IndexFile(sessions.folder, sessions.codec.name)

    def scan(self, tables: IndexTables) -> tuple[Catalogue, FolderScan]:
        """Return the state of the index, and how the files differ from it.

        Raises: IndexUnusable if the positions of the index belong to another feed; also the errors
        of `scan_folder`.
        """
        catalogue = tables.catalogue()
        self.feed.refresh()
        if not self.feed.goes_on_from(catalogue.feed):
            raise IndexUnusable("the feed of the folder was replaced")
        return catalogue, scan_folder(self.sessions, self.feed, catalogue)

    def next_step(self) -> Step | None:
        """Return the next step; None if all entries are indexed.

        Before it returns a step, the method removes from the index the texts that are no longer in
        the files.

        Raises: the errors of `IndexFile.reading` and of `scan_folder`; StoreUnavailable if other
        programs rewrite indexed files again and again.
        """
        for _ in range(_DROPS):
            with self.file.reading() as tables:
                catalogue, scanned = self.scan(tables)
                loose = None
                if not scanned.behind and not scanned.stale:
                    log = FolderLog(self.sessions, tables, catalogue, scanned)
                    reader = SqliteReader(tables, INDEXED)
                    mark = catalogue.mark.usable
                    loose = run_now(indexer.step_of_loose(reader, log, mark))
            if not scanned.stale:
                break
            self._drop(scanned.stale)
        else:
            raise StoreUnavailable(
                str(self.file.path),
                "session files are rewritten faster than they are indexed; try again later",
            )
        if scanned.behind:
            return Step(self, catalogue, scanned) if scanned.is_placed else None
        return Step(self, catalogue, scanned, loose) if loose and loose.texts else None

    def remove(self, streams: Collection[StreamId], remove: Callable[[], None]) -> None:
        """Remove the sessions and all bytes of their words from the index; then call `remove`.

        The call removes the whole index if the removal fails, for example if the index is damaged
        or the disk is full.
        Raises: StoreReadOnly, StoreUnavailable.
        """
        with self.file.hold_lock():
            if self.file.exists:
                self._take_out(lambda catalogue: catalogue.numbers_of(streams))
            remove()

    def forget(self, streams: Collection[StreamId]) -> None:
        """Remove the given sessions and all sessions whose files a user deleted.

        Raises: the errors of `remove`.
        """

        def numbers_of(catalogue: Catalogue) -> set[int]:
            return catalogue.numbers_of(streams) | self._lost_numbers(catalogue)

        with self.file.hold_lock():
            if self.file.exists:
                self._take_out(numbers_of)

    def clear(self) -> None:
        """Remove the index; the next search rebuilds it.

        Raises: StoreReadOnly, StoreUnavailable.
        """
        with self.file.hold_lock():
            self.file.remove()

    def drop(self, stream: StreamId) -> None:
        """Remove a session from the index; the next search adds it again.

        Raises: the errors of `remove`.
        """
        self.remove({stream}, _nothing)

    def _drop(self, numbers: Collection[int]) -> None:
        with self.file.hold_lock():
            self._take_out(lambda _: set(numbers))

    def _lost_numbers(self, catalogue: Catalogue) -> set[int]:
        """Return the sessions whose files no longer contain the indexed entries."""
        folder = self.sessions.folder.path
        known = catalogue.by_number.items()
        return {number for number, each in known if not each.is_in(folder / each.name)}

    def _take_out(self, numbers_of: Callable[[Catalogue], set[int]]) -> None:
        try:
            with self.file.changing() as tables:
                catalogue = tables.catalogue()
                numbers = numbers_of(catalogue) & catalogue.by_number.keys()
                if numbers:
                    _remove_texts(tables, catalogue, numbers)
        except (IndexUnusable, StoreError, *DAMAGE):
            self.file.remove()
        else:
            if not self.file.settle():
                self.file.remove()


def _remove_texts(tables: IndexTables, catalogue: Catalogue, numbers: Collection[int]) -> None:
    """Remove the sessions with the numbers `numbers` from the index.

    Raises: IndexUnusable if a part of the index is damaged.
    """
    run_now(indexer.forget(SqliteWriter(tables, INDEXED), positions_of(tables, numbers)))
    if catalogue.mark.entry and not stored_mark(tables, INDEXED).entry:
        raise IndexUnusable("a part of it cannot be read")
    remove_places(tables, numbers)
    remove_files(tables, [catalogue.by_number[number] for number in numbers])


def _nothing() -> None:
    """Delete no file, because `Index.drop` changes only the index."""


# ---------------------------------------------------------------- a step


class Step:
    """The next change of the index: call `read`, `build` and `put`, in this order.

    With `loose`, the step only combines indexed texts into an index part, and `read` yields
    nothing.

    Reading is complete when the iterator of `read` ends; `build` can run on another thread.
    """

    def __init__(
        self,
        index: Index,
        catalogue: Catalogue,
        scanned: FolderScan,
        loose: indexer.Step | None = None,
    ) -> None:
        self._index = index
        self._before = catalogue
        self._scanned = scanned
        self._texts: list[Text] = []
        self._places: list[tuple[int, Place]] = []
        self._words = self._bytes = 0
        self._advanced: dict[int, Known] = {}
        self._step = loose
        self.behind = scanned.count
        """Number of entries and sessions that this step and the following steps index."""
        self._is_void = self._has_no_room = False

    def read(self) -> Iterator[int]:
        """Read the entries that are not indexed, a few at a time. Raises: StoreUnavailable."""
        for stale in sorted(self._scanned.behind, key=lambda each: each.places.of(each.end - 1)):
            yield from self._read_session(stale)
            if self._is_full():
                return

    def build(self) -> None:
        """Build a part of the index, if there are enough texts for a part."""
        if self._step is None:
            before = self._before.mark.usable
            entry = max([before.entry, *(text.position for text in self._texts)])
            stream = max([before.stream, *self._advanced])
            after = before._replace(entry=entry, stream=stream)
            self._step = indexer.Step(before, after, self._texts)
        self._step = indexer.with_part(self._step)

    def put(self) -> int:
        """Store the step unless the index or a file changed; return the number of indexed entries.

        Raises: the errors of `IndexFile.changing`.
        """
        file, step = self._index.file, self._step
        if self._is_void or step is None:
            return 0
        with file.hold_lock():
            if not self._is_in_files():
                return 0
            with file.changing() as tables:
                if stored_mark(tables, INDEXED).usable != step.before:
                    return 0
                run_now(indexer.put_in(SqliteWriter(tables, INDEXED), step))
                if not step.is_of_loose:
                    self._put_files(tables)
        counts = {each.known.number: each.known.count for each in self._scanned.behind}
        advanced = self._advanced.values()
        return sum(each.is_whole + each.count - counts[each.number] for each in advanced)

    def _put_files(self, tables: IndexTables) -> None:
        scanned, known = self._scanned, self._before.by_name
        changed = [each for each in scanned.others if known.get(each.name) != each]
        put_files(tables, [*self._advanced.values(), *changed])
        seen = {each.name for each in (*scanned.sessions, *scanned.others)}
        remove_files(tables, [each for name, each in known.items() if name not in seen])
        put_places(tables, self._places)
        advanced = [self._advanced.get(each.known.number) for each in scanned.behind]
        is_whole = all(each is not None and each.is_whole for each in advanced)
        position = scanned.position if is_whole else self._before.position
        put_feed_mark(tables, self._index.feed.mark(), position)

    # -- reading

    def _read_session(self, stale: StaleSession) -> Iterator[int]:
        try:
            yield from self._read_all(stale)
        except SessionNotFound:  # erased meanwhile
            self._is_void = True

    def _read_all(self, stale: StaleSession) -> Iterator[int]:
        if stale.known.number not in self._before.by_number:
            title = found_title(stale.known.number, stale.header)
            if title is not None and not self._take(title):
                return
        first = count = stale.known.count
        last = stale.known.last
        while (log := self._log(stale, count, last)) is not None:
            if count == stale.end or self._is_full():
                self._advanced[stale.known.number] = known_after(stale, log, count)
                return
            count = self._take_rows(stale, log, count, min(count + _ROWS, stale.end))
            last = place_of_row(log.rows[count - 1]) if count else last
            yield count - first
        self._is_void = True  # it was removed or rewritten: the next scan detects that

    def _log(self, stale: StaleSession, count: int, last: tuple[int, int, int]) -> Log | None:
        """Return the session's log if it still begins with the `count` entries that were read."""
        log = stale.open_log(self._index.sessions)
        if log is None or len(log.rows) < stale.end:
            return None
        is_same = not count or place_of_row(log.rows[count - 1]) == last
        return log if is_same or isinstance(log, Tail) else None

    def _take_rows(self, stale: StaleSession, log: Log, first: int, upto: int) -> int:
        """Add entries from `first` to before `upto` until the part is full; return the next seq."""
        for found in found_in(log, range(first, upto), stale.places):
            assert found.entry is not None, "only titles have none"
            place = place_in(log, found.entry.seq, stale.known.number)
            if not self._take(found):
                return place.seq
            self._places.append((found.position, place))
            self._bytes += place.size
            if self._is_full():
                return place.seq + 1
        return upto

    def _take(self, found: Found) -> bool:
        """Add a text to the index part that is built; return False if the part has no room for it.

        A text that is larger than an index part becomes the only text of its part.
        """
        text = text_of(found)
        if self._texts and self._words + len(text.words) > MOST_WORDS:
            self._has_no_room = True
            return False
        self._texts.append(text)
        self._words += len(text.words)
        return True

    def _is_full(self) -> bool:
        return (
            self._has_no_room
            or len(self._texts) >= sizes.BATCH_ROWS
            or self._bytes > sizes.BATCH_BYTES
        )

    def _is_in_files(self) -> bool:
        """Return whether the files still contain the entries that were read."""
        found = (
            (each.path, self._advanced.get(each.known.number)) for each in self._scanned.behind
        )
        return all(known is None or known.is_in(path) for path, known in found)
