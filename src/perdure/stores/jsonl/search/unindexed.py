"""Search a folder whose index cannot be created; lines that cannot match are skipped.

The search starts at the newest entries and stops when it has enough matches for the ranking. The
search first checks the bytes of each session (``prefilter``). If the bytes of a session contain all
words of the query, the search indexes the file and decodes the lines that may match
(docs/jsonl.md). The search works in steps, so that the handle's thread can write in between. The
search keeps only three things in memory: the candidates, the index of the session that it reads,
and either one piece of a file or the entries of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from heapq import nlargest
from pathlib import Path

from perdure.errors import SessionNotFound, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.session.search.query import sought_in
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.jsonl.contents import entries_of
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.reads import tree_seq, upwards
from perdure.stores.jsonl.rows import Row
from perdure.stores.jsonl.search.positions import SearchedSession, sessions_in
from perdure.stores.jsonl.search.prefilter import Prefilter, PrefilterMatch
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.protocol import OnProgress
from perdure.stores.regular_files import open_to_read
from perdure.stores.scan import Fit, Found, fitting, found_entry, found_title, hits_among

STEP_COST = 4 * 2**20
"""Maximum cost of one step. Units: searched bytes, or work that takes as long as these bytes."""

_PIECE_BYTES = 2**18
_ROWS = 128
_ROW_COST, _ENTRY_COST = 4_000, 50_000
"""Costs of an entry besides its bytes: to find and search its line, and to decode the entry."""

_KINDS = frozenset(KINDS)


class Search:
    """One search: call `step` until it returns False, then `hits`.

    `catch_up` gives positions to entries that have none. Raises: InvalidQuery.
    """

    def __init__(
        self,
        shelf: SessionIndex,
        feed: Feed,
        catch_up: Callable[[], None],
        query: SearchQuery,
    ) -> None:
        self._passed = self._total = 0
        self._shelf = shelf
        self._feed = feed
        self._catch_up = catch_up
        self._query = query
        self._sought = sought_in(query.text)
        self._sieve = Prefilter(self._sought)
        self._fits: list[Fit] = []
        self._floor: int | None = None  # what stands before it is not among the newest
        self._costs = self._scan_steps()

    def step(self) -> bool:
        """Search the next entries; return False after the last ones."""
        done = 0
        for cost in self._costs:
            done += cost
            if done >= STEP_COST:
                return True
        return False

    def tell(self, on_progress: OnProgress | None) -> None:
        """Report the number of searched entries and the number of all entries."""
        if on_progress is not None:
            on_progress(self._passed, self._total)

    def hits(self) -> list[Hit]:
        """Return the hits with the guarantees of ``SearchService.hits``."""
        branches = _Branches(self._shelf)
        return hits_among(self._fits, self._query, self._sought, branches.has)

    def _scan_steps(self) -> Iterator[int]:
        with suppress(StoreReadOnly, StoreFull):
            self._catch_up()
        sessions = sessions_in(self._shelf, self._feed)
        if self._query.sessions:
            sessions = [each for each in sessions if each.header.id in self._query.sessions]
        self._total = sum(each.entries for each in sessions)
        for session in sessions:
            if not self._is_too_old(session.places.newest):
                yield from self._of_session(session)
            self._passed += session.entries
        titles = (found_title(session.number, session.header) for session in sessions)
        self._take([each for each in titles if each is not None])

    def _of_session(self, session: SearchedSession) -> Iterator[int]:
        path = self._shelf.path(session.header.id)
        looking = PrefilterMatch(self._sieve)
        for lines in () if path is None else _pieces(path):
            yield len(lines)
            if looking.take(lines):
                yield from self._of_log(session)
                return

    def _of_log(self, session: SearchedSession) -> Iterator[int]:
        """Collect the entries that may match, newest first."""
        stream, places = session.header.id, session.places
        end = 0
        last: tuple[int, Row] | None = None
        while (log := self._shelf.log(stream)) is not None and log.rows:
            if last is None or not _stands(last, log):
                self._forget(stream)
                end, last = len(log.rows), (log.head, log.rows[-1])
            if not end or (places.is_in_order and self._is_too_old(places.of(end - 1))):
                return
            begin = max(0, end - _ROWS)
            seqs = [seq for seq in reversed(range(begin, end)) if self._is_asked_for(log.rows[seq])]
            try:
                entries = entries_of(log, seqs, self._may_fit)
            except SessionNotFound:  # erased meanwhile
                self._forget(stream)
                return
            subject = log.header.subject
            found = (found_entry(places.of(entry.seq), entry, subject) for entry in entries)
            self._take([each for each in found if each is not None])
            end = begin
            yield len(seqs) * _ROW_COST + len(entries) * _ENTRY_COST

    def _forget(self, stream: StreamId) -> None:
        """Forget the session's matches, because its file was rewritten or lines moved in it."""
        self._fits = [fit for fit in self._fits if fit[0].stream != stream]

    def _is_asked_for(self, row: Row) -> bool:
        since, until = self._query.since, self._query.until
        is_then = (since is None or row.at >= since) and (until is None or row.at < until)
        return is_then and row.kind in _KINDS

    def _may_fit(self, lines: bytes) -> bool:
        return PrefilterMatch(self._sieve).take(lines)

    def _take(self, texts: Iterable[Found]) -> None:
        self._fits += fitting(texts, self._query, self._sought)
        if len(self._fits) >= MOST_RANKED:
            self._fits = nlargest(MOST_RANKED, self._fits, key=_position)
            self._floor = self._fits[-1][0].position

    def _is_too_old(self, position: int) -> bool:
        """Whether entries up to the given position are too old to be among the newest matches."""
        return self._floor is not None and position < self._floor


def _position(fit: Fit) -> int:
    return fit[0].position


def _stands(last: tuple[int, Row], log: Log) -> bool:
    """Return True if the entry `last` is unchanged in `log`."""
    seq, row = last
    return seq < len(log.rows) and log.rows[seq] == row


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield a file in pieces; a line that is cut at the end of one piece begins the next piece.

    Shape: the result is empty if the file does not exist.
    """
    try:
        with open_to_read(path, buffering=0) as file:
            begin, size = 0, _PIECE_BYTES
            while len(piece := file.read(size)) == size:
                yield piece
                whole = piece.rfind(b"\n") + 1
                size = _PIECE_BYTES if whole else 2 * size  # of a long line ever more is read
                begin += whole
                file.seek(begin)
            yield piece
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(str(path), str(error)) from error


class _Branches:
    """Finds out whether an entry is on the current branch; reads each branch only once."""

    def __init__(self, shelf: SessionIndex) -> None:
        self._shelf = shelf
        self._known: dict[StreamId, frozenset[int]] = {}

    def has(self, found: Found) -> bool:
        """Return True if `found`, or the entry that it refers to, is on the current branch."""
        target = found.target
        if target is None:
            return True
        log = self._shelf.log(found.stream)
        seq = None if log is None else tree_seq(log, target)
        if log is None or seq is None:
            return False
        if found.stream not in self._known:
            self._known[found.stream] = frozenset(upwards(log, log.leaf))
        return seq in self._known[found.stream]
