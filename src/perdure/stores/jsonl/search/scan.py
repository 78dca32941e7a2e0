"""Find the differences between the files of a folder and the folder's index.

An unchanged file is not opened. If perdure appended to a file, the file is read from its former
end. If another program changed a file, perdure indexes the file again to check whether entries
moved. The indexed entries of a removed or rewritten file are `stale`: no search is allowed to find
them.
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
from perdure.stores.jsonl.disk.feed import Feed, Span
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.index import Log, Tail
from perdure.stores.jsonl.search.file_table import Catalogue, Known, place_of_row, trail_of
from perdure.stores.jsonl.search.positions import Places, give_positions
from perdure.stores.jsonl.search.texts import is_enough
from perdure.stores.jsonl.session_index import FileState, SessionIndex


class StaleSession(msgspec.Struct):
    """A session with entries that are not indexed: from seq ``known.count`` to before `end`.

    `log` is set if the comparison with the index had to open the session's log.
    """

    path: Path
    stamp: Stamp
    header: StreamHeader
    known: Known
    end: int
    places: Places
    log: Log | None = None

    def now(self, sessions: SessionIndex) -> Known:
        """Return the state of the session with all of its entries."""
        log = self.open_log(sessions)
        with suppress(SessionNotFound):
            if log is not None:
                return known_after(self, log, min(self.end, len(log.rows)))
        return self.known

    def open_log(self, sessions: SessionIndex) -> Log | None:
        """Return the session's log; None if the session's file was removed."""
        return self.log or sessions.log(self.header.id)


class FolderScan(msgspec.Struct):
    """The result of a scan: the searchable sessions, and the files without a session (`others`).

    `behind` are the sessions with entries that are not indexed. `stale` are the numbers of sessions
    that are indexed but no longer in the folder. No entry will be added at or before `position`. If
    `is_placed` is False, the feed has lost lines, so some entries have no positions.
    """

    sessions: list[Known]
    behind: list[StaleSession]
    others: list[Known]
    stale: set[int]
    position: int
    is_placed: bool

    @property
    def count(self) -> int:
        """Number of entries and sessions that differ from the index."""
        return sum(each.end - each.known.count for each in self.behind) + len(self.behind)

    def is_due(self, loose: int) -> bool:
        """Return whether a search must update the index first.

        `loose` is the number of indexed texts that are not yet in a part of the index.
        """
        return bool(self.stale) or is_due(self.count, loose)


def scan_folder(sessions: SessionIndex, feed: Feed, catalogue: Catalogue) -> FolderScan:
    """Compare the folder with `catalogue`.

    Entries that have no position in the feed get a position.

    Raises: StoreReadOnly, StoreFull, StoreUnavailable.
    """
    return _FolderScanner(sessions, feed, catalogue).survey()


class _FolderScanner:
    def __init__(self, sessions: SessionIndex, feed: Feed, catalogue: Catalogue) -> None:
        self._index = sessions
        self._feed = feed
        self._catalogue = catalogue
        self._sessions: list[Known] = []
        self._others: list[Known] = []
        self._changed: list[tuple[Path, Stamp, Known | None, FileState]] = []
        self._numbers = catalogue.mark.usable.stream

    def survey(self) -> FolderScan:
        # Entries reach their file first and the feed then: what it has now is in the files.
        self._feed.refresh()
        position = self._feed.position
        self._look()
        self._take_one_file_a_session()
        self._changed.sort(key=lambda each: (each[3].header.created_at, each[3].header.id))
        for path, *_, standing in self._changed:
            # Otherwise the folder is listed for each.
            self._index.remember_path(standing.header.id, path)
            if self._feed.head(standing.header.id) < standing.head:
                log = self._index.log(standing.header.id)
                if log is not None:
                    give_positions(self._feed, log)
        behind = [self._behind(*each) for each in self._changed]
        sessions = [*self._sessions, *(each.known for each in behind)]
        stale = self._catalogue.by_number.keys() - {known.number for known in sessions}
        is_placed = self._place(behind, 0 if stale else self._catalogue.position)
        return FolderScan(sessions, behind, self._others, stale, position, is_placed)

    def _look(self) -> None:
        known = self._catalogue.by_name
        for path, stamp in self._index.folder.files():
            before = known.get(path.name)
            if before is not None and before.looks_like(stamp) and before.is_whole:
                (self._sessions if before.stream else self._others).append(before)
                continue
            standing = self._index.standing_in(path, stamp)
            if standing is None or standing.header.kind != "session":
                self._others.append(_other(path, stamp))
            else:
                self._changed.append((path, stamp, before, standing))

    def _take_one_file_a_session(self) -> None:
        """If several files contain the same session, use the file that the session index uses."""
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
                path = self._index.path(stream)
                several.intersection_update(set[str]() if path is None else {path.name})
        self._sessions = [each for each in self._sessions if each.name in names[each.stream]]
        self._changed = [each for each in self._changed if each[0].name in names[each[3].header.id]]

    def _behind(
        self, path: Path, stamp: Stamp, before: Known | None, standing: FileState
    ) -> StaleSession:
        header = standing.header
        log = None
        is_known = before is not None and before.stream == header.id
        if before is not None and is_known:
            log = self._grown(before, path, stamp)
        if before is None or log is None:
            before = self._new(path, stamp, standing)
        end, now = standing.head + 1, log
        if now is None and len(self._changed) <= SCANNED:
            now = self._index.log(header.id)
        if now is not None:  # lines of a tool before perdure's last batch are placed after it
            give_positions(self._feed, now)
            end = min(len(now.rows), self._feed.head(header.id) + 1)
        return StaleSession(path, stamp, header, before, end, Places([], 0, 0), log)

    def _grown(self, known: Known, path: Path, stamp: Stamp) -> Log | None:
        """Return the session's log if entries were only added after the indexed entries."""
        try:
            if not known.begins(path, stamp):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(str(path), str(error)) from error
        if known.is_settled and known.is_whole and not self._index.has_log(path):
            tail = Tail(path, self._index.codec)
            with suppress(OSError):
                header = StreamHeader(known.stream, known.created_at, subject=known.subject)
                if tail.go_on(header, known.end, known.count, known.leaf) and is_enough(tail):
                    return tail
        return log_of(self._index, known, path)

    def _new(self, path: Path, stamp: Stamp, standing: FileState) -> Known:
        """Return a session without indexed entries, with a new number."""
        self._numbers += 1
        header = standing.header
        return Known(
            os.fsencode(path.name),
            header.id,
            self._numbers,
            stamp.inode,
            stamp.size,
            stamp.modified_ns,
            header.created_at,
            header.subject,
            standing.head + 1,
        )

    def _place(self, behind: list[StaleSession], after: int) -> bool:
        """Set the positions of unindexed entries; return False if the feed lacks positions."""
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


def log_of(sessions: SessionIndex, known: Known, path: Path) -> Log | None:
    """Return the log of the session at `path` if it begins with the entries that are indexed."""
    log = sessions.log(known.stream)
    if log is None or log.path != path or len(log.rows) < known.count:
        return None
    is_same = not known.count or place_of_row(log.rows[known.count - 1]) == known.last
    return log if is_same else None


def _length(span: Span, first: int, end: int) -> int:
    """Return how many entries from `first` to before `end` are in `span`."""
    return max(0, min(span.first + span.length, end) - max(span.first, first))


def _other(path: Path, stamp: Stamp) -> Known:
    file = os.fsencode(path.name)
    return Known(file, StreamId(""), 0, stamp.inode, stamp.size, stamp.modified_ns)


def known_after(behind: StaleSession, log: Log, count: int) -> Known:
    """Return the state of the session after its first `count` entries are indexed.

    Raises: SessionNotFound if the file was removed; StoreUnavailable.
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
