"""Represent the session files of a folder as the log that the search service reads.

A text has the position of its entry in the folder's feed; the title of a session has the negative
number of the session. The index stores for each file how many entries are indexed, because other
programs append lines and rewrite files. The stored index mark does not show whether the index lacks
entries, so a `FolderScan` lists the sessions with entries that are not indexed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.session.search.matches import counts_in
from perdure.session.search.query import Sought
from perdure.session.search.words import terms
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.search.branch_members import Branch
from perdure.stores.jsonl.search.file_table import (
    EVERYWHERE,
    Catalogue,
    Known,
    place_at,
    seqs_of,
)
from perdure.stores.jsonl.search.index_file import IndexTables
from perdure.stores.jsonl.search.positions import Places
from perdure.stores.jsonl.search.scan import FolderScan, StaleSession
from perdure.stores.jsonl.search.texts import found_at, found_in, target_of
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.scan import Found, found_title
from perdure.stores.search.recall_plan import RecallCache
from perdure.stores.search.rows import Mark

AT_ONCE = 200
"""Maximum number of texts in memory at a time."""

T = TypeVar("T")


class Untrue(Exception):
    """The index contradicts the file of a session, although the file looks unchanged."""

    def __init__(self, stream: StreamId) -> None:
        super().__init__(stream)
        self.stream = stream


class FolderLog:
    """`IndexedLog` of a folder in the state that `scanned` describes.

    `catalogue` is the state of the index in `tables`. With `sought`, a text that the index found
    must still match the query when it is read from the file.
    Raises: the exception Untrue if a text that the index found does not match the query. Reading
    raises StoreUnavailable if a file cannot be read.
    """

    def __init__(
        self,
        sessions: SessionIndex,
        tables: IndexTables,
        catalogue: Catalogue,
        scanned: FolderScan,
        sought: Sought | None = None,
    ) -> None:
        self._sessions = sessions
        self._tables = tables
        self._catalogue = catalogue
        self._scanned = scanned
        self._sought = sought
        self._behind: dict[int, Found] = {}
        self._targets: dict[int, tuple[int, int]] = {}  # position: session and target
        self._known = {each.number: each for each in scanned.sessions}
        self._branches: dict[int, Branch] = {}

    @property
    def address(self) -> str:
        return str(self._sessions.folder.path)

    async def compute(self, work: Callable[[], T]) -> T:
        return work()  # on the thread of the handle

    async def behind(self, mark: Mark) -> AsyncIterator[list[Found]]:
        for stale in self._scanned.behind:
            texts = self._texts_behind(stale)
            while some := list(islice(texts, AT_ONCE)):
                self._behind.update((found.position, found) for found in some)
                yield some

    async def missing(self, mark: Mark, indexed: Container[int]) -> AsyncIterator[list[Found]]:
        for number, known in self._catalogue.by_number.items():
            log = self._sessions.log(known.stream) if number in self._known else None
            if log is not None:
                yield list(self._texts_missing(log, known, indexed))

    async def texts_at(self, positions: Sequence[int]) -> list[Found]:
        found = (self._behind.get(each) or self._text_at(each) for each in positions)
        return [each for each in found if each is not None]

    async def on_branch(self, texts: Sequence[Found]) -> list[bool]:
        return list(map(self._is_on_branch, texts))

    # -- what is not indexed

    def _texts_behind(self, stale: StaleSession) -> Iterator[Found]:
        number = stale.known.number
        if self._is_new(number):
            title = found_title(number, stale.header)
            if title is not None:
                yield title
        log = stale.open_log(self._sessions)
        if log is None:
            return
        self._known[number] = stale.now(self._sessions)
        seqs = range(stale.known.count, min(stale.end, len(log.rows)))
        with suppress(SessionNotFound):  # erased meanwhile
            for found in found_in(log, seqs, stale.places):
                self._targets[found.position] = number, target_of(log, found)
                yield found

    def check_added(self, cache: RecallCache) -> None:
        """Empty `cache` if it contains unindexed texts of a file that has changed meanwhile."""
        folder = self._sessions.folder.path
        if not all(known.is_in(folder / known.name) for known in self._tables.added):
            cache.follow(Mark(-1))
        new = (each for each in self._scanned.behind if self._is_new(each.known.number))
        self._tables.added = [each.now(self._sessions) for each in new]

    def _is_new(self, number: int) -> bool:
        return number not in self._catalogue.by_number

    # -- what is indexed

    def _texts_missing(self, log: Log, known: Known, indexed: Container[int]) -> Iterator[Found]:
        """Yield the texts of a session that are missing in the index."""
        title = found_title(known.number, log.header)
        if title is not None and title.position not in indexed:
            yield title
        there = seqs_of(self._tables, known.number, indexed)
        seqs = [seq for seq in range(min(known.count, len(log.rows))) if seq not in there]
        with suppress(SessionNotFound):  # erased meanwhile
            yield from found_in(log, seqs, Places([], 0, 0))

    def _text_at(self, position: int) -> Found | None:
        if position < 0:
            return self._title_of(-position)
        place = place_at(self._tables, position)
        known = None if place is None else self._known.get(place.session)
        if place is None or known is None:
            return None
        found = found_at(self._sessions, known, position, place)
        if found is None:
            return None
        self._targets[position] = place.session, place.target
        if self._sought is not None and counts_in(terms(found.what.text), self._sought) is None:
            raise Untrue(known.stream)
        return found

    def _title_of(self, number: int) -> Found | None:
        known = self._known.get(number)
        state = None if known is None else self._sessions.standing(known.stream)
        return None if state is None else found_title(number, state.header)

    def _is_on_branch(self, found: Found) -> bool:
        number, target = self._targets.get(found.position, (0, EVERYWHERE))
        if target < 0:
            return target == EVERYWHERE
        branch = self._branches.get(number)
        if branch is None:
            known = self._known[number]
            branch = self._branches[number] = known.branching.branch(known.leaf)
        return branch.has(target)
