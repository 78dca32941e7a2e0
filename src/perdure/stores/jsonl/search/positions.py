"""The positions of the entries of all sessions: the common order of a folder's entries.

The positions come from the feed. If the folder cannot be written, new entries have no position.
Entries without a position come last, ordered by the age of their session, then by seq.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.jsonl.disk.feed import Feed, Span
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.session_index import FileState, SessionIndex


class Places:
    """The positions of one session's entries.

    An entry without a position in the feed has the position `later` plus its seq. No entry has a
    position greater than `newest`. `is_in_order` means that a later entry always has a greater
    position.
    """

    def __init__(self, spans: Sequence[Span], head: int, later: int) -> None:
        self._spans = spans
        self._later = later
        ends = [0, *(span.first + span.length for span in spans)]
        self.is_in_order = all(map(_follows, spans, ends))
        self.newest = self.of(head) if self.is_in_order else later + head

    def of(self, seq: int) -> int:
        """Return the position of the entry `seq`."""
        at = bisect_right(self._spans, seq, key=_first) - 1
        span = None if at < 0 else self._spans[at]
        if span is None or seq >= span.first + span.length:
            return self._later + seq
        return span.position + seq - span.first


def _first(span: Span) -> int:
    return span.first


def _follows(span: Span, end: int) -> bool:
    return span.first == end


class SearchedSession(msgspec.Struct, frozen=True):
    """A session to be searched. `number` is the session's rank by age, from 1."""

    number: int
    header: StreamHeader
    entries: int
    places: Places


def sessions_in(shelf: SessionIndex, feed: Feed) -> list[SearchedSession]:
    """Return all sessions of the folder, those with the newest entries first."""
    spans = feed.by_stream()
    sessions: list[SearchedSession] = []
    later = feed.position + 1
    for number, standing in enumerate(sorted(_standings(shelf), key=_age), 1):
        header, head = standing.header, standing.head
        if header.kind == "session":
            places = Places(spans[header.id], head, later)
            sessions.append(SearchedSession(number, header, head + 1, places))
        later += head + 1
    return sorted(sessions, key=_newest, reverse=True)


def _standings(shelf: SessionIndex) -> list[FileState]:
    """Return the file state of each session from the index, without listing the folder again."""
    found: dict[StreamId, tuple[Path, FileState]] = {}
    several: set[StreamId] = set()
    for path, standing in shelf.standings():
        if standing.header.id in found:
            several.add(standing.header.id)  # which file counts is the shelf's to say
        found[standing.header.id] = (path, standing)
    for stream, (path, _) in found.items():
        if stream not in several:
            shelf.remember_path(stream, path)
    return [standing for _, standing in found.values()]


def _age(standing: FileState) -> tuple[int, StreamId]:
    return standing.header.created_at, standing.header.id


def _newest(session: SearchedSession) -> int:
    return session.places.newest


# ---------------------------------------------------------------- what has no place yet


def catch_up(shelf: SessionIndex, feed: Feed) -> None:
    """Give positions to all entries of the folder that have none.

    Raises: StoreReadOnly, StoreFull, StoreUnavailable.
    """
    feed.refresh()
    for standing in _standings(shelf):
        if feed.head(standing.header.id) < standing.head:
            log = shelf.log(standing.header.id)
            if log is not None:
                give_positions(feed, log)


def give_positions(feed: Feed, log: Log) -> None:
    """Give positions to those entries of a session that had none when the feed was read.

    Raises: StoreReadOnly, StoreFull, StoreUnavailable.
    """
    stream = log.header.id
    if feed.head(stream) < log.head:
        rows = log.rows[feed.head(stream) + 1 :]
        is_lossy = any(row.is_ours for row in rows)
        feed.extend(stream, log.head, log.path, is_lossy=is_lossy)
