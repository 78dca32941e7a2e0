"""What the files of a folder hold beside what its index knows of them.

A file that looks as it did is not opened. One that grew is read from where it ended, if only ours
was appended; else it is indexed anew, to see whether entries changed their places. What was
indexed of a file that is gone, or that a tool rewrote, is `stale`: nothing of it is found any more.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import msgspec

from perdure.errors import SessionNotFound, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.search.parts.sizes import SCANNED, is_due
from perdure.session.search.phrase_text import join_terms
from perdure.session.search.searchable import searchable_title
from perdure.session.search.words import terms
from perdure.stores.jsonl.disk.feed import Feed, Span
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.search.catalogue import (
    Catalogue,
    Known,
    place_of_row,
    trail_of,
)
from perdure.stores.jsonl.search.positions import Places, give_positions
from perdure.stores.jsonl.search.texts import is_enough
from perdure.stores.jsonl.session_index import FileState, SessionIndex


class StaleSession(msgspec.Struct):
    """A session with entries that are not indexed: those from ``known.count`` to before `end`.

    `log` is there where it was needed to tell that.
    """

    path: Path
    stamp: Stamp
    header: StreamHeader
    known: Known
    end: int
    places: Places
    log: Log | None = None

    def now(self, shelf: SessionIndex) -> Known:
        """What is known of the session with all of its entries; none are lost by asking."""
        log = self.open_log(shelf)
        with suppress(SessionNotFound):
            if log is not None:
                return known_after(self, log, min(self.end, len(log.rows)))
        return self.known

    def open_log(self, shelf: SessionIndex) -> Log | None:
        """Its index; None when its file is gone."""
        return self.log or shelf.log(self.header.id)


class FolderScan(msgspec.Struct):
    """`sessions`: all that can be searched, as they are now, those `behind` among them.

    `others`: files that hold none. `stale`: the numbers of sessions that are indexed and not there
    any more. `numbers` were given so far. `position`: no entry up to it comes any more. Not
    `is_placed`: the feed lost lines, and nobody can say where what is behind stands.
    """

    sessions: list[Known]
    behind: list[StaleSession]
    others: list[Known]
    stale: set[int]
    numbers: int
    position: int
    is_placed: bool

    @property
    def count(self) -> int:
        """How many entries, and sessions, are not indexed as they are."""
        return sum(each.end - each.known.count for each in self.behind) + len(self.behind)

    @property
    def is_due(self) -> bool:
        """A search would read more than it should, or find what is not there."""
        return bool(self.stale) or is_due(self.count, 0)


def scan_folder(shelf: SessionIndex, feed: Feed, catalogue: Catalogue) -> FolderScan:
    """The folder as it is. Gives positions to what has none.

    Raises: StoreReadOnly, StoreFull, StoreUnavailable.
    """
    return _FolderScanner(shelf, feed, catalogue).survey()


class _FolderScanner:
    def __init__(self, shelf: SessionIndex, feed: Feed, catalogue: Catalogue) -> None:
        self._shelf = shelf
        self._feed = feed
        self._catalogue = catalogue
        self._sessions: list[Known] = []
        self._others: list[Known] = []
        self._changed: list[tuple[Path, Stamp, Known | None, FileState]] = []
        self._numbers = catalogue.numbers

    def survey(self) -> FolderScan:
        # Entries reach their file first and the feed then: what it has now is in the files.
        self._feed.refresh()
        position = self._feed.position
        self._look()
        self._take_one_file_a_session()
        for path, *_, standing in self._changed:
            self._shelf.remember_path(
                standing.header.id, path
            )  # else the folder is listed for each
            if self._feed.head(standing.header.id) < standing.head:
                log = self._shelf.log(standing.header.id)
                if log is not None:
                    give_positions(self._feed, log)
        behind = [self._behind(*each) for each in self._changed]
        sessions = [*self._sessions, *(each.known for each in behind)]
        stale = self._catalogue.by_number.keys() - {known.number for known in sessions}
        is_placed = self._place(behind, 0 if stale else self._catalogue.position)
        return FolderScan(
            sessions, behind, self._others, stale - {0}, self._numbers, position, is_placed
        )

    def _look(self) -> None:
        known = self._catalogue.by_name
        for path, stamp in self._shelf.folder.files():
            before = known.get(path.name)
            if before is not None and before.looks_like(stamp) and before.is_whole:
                (self._sessions if before.stream else self._others).append(before)
                continue
            standing = self._shelf.standing_in(path, stamp)
            if standing is None or standing.header.kind != "session":
                self._others.append(_other(path, stamp))
            else:
                self._changed.append((path, stamp, before, standing))

    def _take_one_file_a_session(self) -> None:
        """Where several files hold a session, the shelf says which counts."""
        streams = [known.stream for known in self._sessions]
        streams += [standing.header.id for *_, standing in self._changed]
        if len(set(streams)) == len(streams):
            return
        names: defaultdict[StreamId, set[str]] = defaultdict(set)
        for known in self._sessions:
            names[known.stream].add(known.name)
        for path, *_, standing in self._changed:
            names[standing.header.id].add(path.name)
        for stream, several in names.items():
            if len(several) > 1:
                path = self._shelf.path(stream)
                several.intersection_update(set[str]() if path is None else {path.name})
        self._sessions = [each for each in self._sessions if each.name in names[each.stream]]
        self._changed = [each for each in self._changed if each[0].name in names[each[3].header.id]]

    def _behind(
        self, path: Path, stamp: Stamp, before: Known | None, standing: FileState
    ) -> StaleSession:
        header = standing.header
        log = None
        is_known = before is not None and before.stream == header.id
        if before is not None and is_known and before.count:
            log = self._grown(before, path, stamp)
        if before is None or log is None:
            number = before.number if before is not None and is_known and not before.count else 0
            before = self._new(path, stamp, standing, number)
        end, now = standing.head + 1, log
        if now is None and len(self._changed) <= SCANNED:
            now = self._shelf.log(header.id)
        if now is not None:  # lines that slipped in before our last batch stand behind it
            give_positions(self._feed, now)
            end = min(len(now.rows), self._feed.head(header.id) + 1)
        return StaleSession(path, stamp, header, before, end, Places([], 0, 0), log)

    def _grown(self, known: Known, path: Path, stamp: Stamp) -> Log | None:
        """What the session is now, if it only grew by entries behind those that are indexed."""
        try:
            if not known.begins(path, stamp):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(str(path), str(error)) from error
        if known.is_settled and known.is_whole and not self._shelf.has_log(path):
            tail = Tail(path, self._shelf.codec)
            with suppress(OSError):
                header = StreamHeader(known.stream, known.created_at)
                if tail.go_on(header, known.end, known.count, known.leaf) and is_enough(tail):
                    return tail
        log = self._shelf.log(known.stream)
        if log is None or log.path != path or len(log.rows) < known.count:
            return None
        is_same = not known.count or place_of_row(log.rows[known.count - 1]) == known.last
        return log if is_same else None

    def _new(self, path: Path, stamp: Stamp, standing: FileState, number: int) -> Known:
        """A session of which nothing is indexed; it is given a number if it has none."""
        if not number:
            self._numbers += 1
        header = standing.header
        return Known(
            os.fsencode(path.name),
            header.id,
            number or self._numbers,
            stamp.inode,
            stamp.size,
            stamp.modified_ns,
            header.created_at,
            words_of_title(header),
            standing.head + 1,
        )

    def _place(self, behind: list[StaleSession], after: int) -> bool:
        """Say where in the order of the folder what is behind stands; False where nobody knows."""
        wanted = {each.header.id for each in behind}
        spans: defaultdict[StreamId, list[Span]] = defaultdict(list)
        for span in self._feed.after(after) if wanted else ():
            if span.stream in wanted:
                spans[span.stream].append(span)
        for each in behind:
            first, found = each.known.count, spans[each.header.id]
            each.places = Places(found, each.end - 1, 0)
            if sum(_length(span, first, each.end) for span in found) != each.end - first:
                return after > 0 and self._place(behind, 0)
        return True


def _length(span: Span, first: int, end: int) -> int:
    """How many entries from `first` to before `end` are in the span."""
    return max(0, min(span.first + span.length, end) - max(span.first, first))


def _other(path: Path, stamp: Stamp) -> Known:
    file = os.fsencode(path.name)
    return Known(file, StreamId(""), 0, stamp.inode, stamp.size, stamp.modified_ns)


def words_of_title(header: StreamHeader) -> str:
    """The words of the title that a session was created with, joined."""
    what = searchable_title(header)
    return "" if what is None else join_terms(terms(what.text))


def known_after(behind: StaleSession, log: Log, count: int) -> Known:
    """What is known of the session once its first `count` entries are indexed.

    Raises: SessionNotFound when the file is gone by now; StoreUnavailable.
    """
    known = behind.known
    try:
        trail = trail_of(log.path, log.end)
    except FileNotFoundError:
        raise SessionNotFound(known.stream) from None
    except OSError as error:
        raise StoreUnavailable(str(log.path), str(error)) from error
    return msgspec.structs.replace(
        known,
        inode=behind.stamp.inode,
        size=behind.stamp.size,
        modified_ns=behind.stamp.modified_ns,
        entries=len(log.rows),
        count=count,
        is_settled=count <= log.run.first,
        last=place_of_row(log.rows[count - 1]) if count else (0, 0, 0),
        leaf=log.leaf,
        branching=known.branching.grown(log.rows, known.count, count),
        end=log.end,
        trail=trail,
    )
