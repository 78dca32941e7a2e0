"""Recall from a folder that has no index and cannot be written, by reading every session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Stamp
from perdure.stores.jsonl.search.positions import SearchedSession, sessions_in
from perdure.stores.jsonl.search.texts import found_in
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.scan import Found
from perdure.stores.search import recall_plan
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.recall_plan import Asked, Recalled

_ROWS = 64
"""Number of entries that are read at a time; no other call of the handle runs meanwhile."""

_State = tuple[Stamp | None, frozenset[tuple[str, Stamp]]]


class RecallScan:
    """Holds the texts of a folder in memory. If any file changes, all texts are read again."""

    def __init__(self, sessions: SessionIndex, feed: Feed) -> None:
        self._sessions = sessions
        self._feed = feed
        self._clear(None)

    def _clear(self, state: _State | None) -> None:
        self._state = state
        self._corpus = Corpus()
        self._places: dict[int, tuple[SearchedSession, int]] = {}
        self._reading: Iterator[None] = iter(())

    def step(self) -> bool:
        """Read some entries; return False when all entries are read. Raises: StoreUnavailable."""
        files = ((path.name, stamp) for path, stamp in self._sessions.folder.files())
        state = self._feed.stamp(), frozenset(files)
        if state != self._state:
            self._clear(state)
            self._reading = self._read()
        return next(self._reading, self) is not self

    def recalled(self, asked: Asked) -> list[Recalled]:
        """Implement ``SearchService.recall`` over the texts that were read."""
        found: list[Recalled] = []
        for ranked in recall_plan.scanned(self._corpus, (), None, asked):
            session, seq = self._places[self._corpus.positions[ranked.text]]
            found += [Recalled(text, ranked) for text in self._texts(session, range(seq, seq + 1))]
        return found

    def _read(self) -> Iterator[None]:
        self._feed.refresh()
        for session in sessions_in(self._sessions, self._feed):
            for first in range(0, session.entries, _ROWS):
                upto = min(first + _ROWS, session.entries)
                for found in self._texts(session, range(first, upto)):
                    recall_plan.add(self._corpus, (found,))
                    if found.entry is not None:
                        self._places[found.position] = session, found.entry.seq
                yield

    def _texts(self, session: SearchedSession, seqs: range) -> list[Found]:
        stream: StreamId = session.header.id
        log = self._sessions.log(stream)
        if log is None:
            return []
        with suppress(SessionNotFound):  # erased meanwhile
            wanted = range(seqs.start, min(seqs.stop, len(log.rows)))
            return list(found_in(log, wanted, session.places))
        return []
