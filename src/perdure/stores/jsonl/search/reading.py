"""Searching a folder: every entry of every file is read, and looked at by the shared rules.

There is nothing to keep up to date, and nothing beside the files that could say what they do not;
a search costs what reading and decoding the folder costs (docs/jsonl.md). It goes in steps, so
that the handle's thread can write in between; memory holds the candidates and one step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import nlargest
from itertools import count

from perdure.errors import StoreFull, StoreReadOnly
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.search.query import Sought
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.jsonl.disk.feed import Feed, Span
from perdure.stores.jsonl.reading import entries, tree_seq, upwards
from perdure.stores.jsonl.shelf import Shelf
from perdure.stores.scanning import Fit, Found, fitting, found_entry, found_title, hits_among

STEP = 256
"""Entries that are looked at in one step."""


class Texts:
    """Everything that can be found in a folder. `catch_up` gives positions to what has none."""

    def __init__(self, shelf: Shelf, feed: Feed, catch_up: Callable[[], None]) -> None:
        self._shelf = shelf
        self._feed = feed
        self._catch_up = catch_up
        self._spans: defaultdict[StreamId, list[Span]] = defaultdict(list)
        self._later = count(1)

    def steps(self, only: tuple[StreamId, ...] = ()) -> Iterator[list[Found]]:
        """All of it, of `only` these sessions if there are any; titles by the age of sessions."""
        with suppress(StoreReadOnly, StoreFull):
            self._catch_up()
        for span in self._feed.after(0):
            self._spans[span.stream].append(span)
        self._later = count(self._feed.position + 1)
        headers = {standing.header.id: standing.header for _, standing in self._shelf.standings()}
        by_age = sorted(headers.values(), key=lambda header: (header.created_at, header.id))
        for number, header in enumerate(by_age, 1):
            if header.kind != "session" or (only and header.id not in only):
                continue
            title = found_title(number, header)
            yield [] if title is None else [title]
            yield from self._of_log(header.id)

    def _of_log(self, stream: StreamId) -> Iterator[list[Found]]:
        after, log = -1, self._shelf.log(stream)
        while log is not None and after < log.head:
            read = entries(log, after, STEP)
            found = (found_entry(self._position_of(entry), entry) for entry in read)
            yield [each for each in found if each is not None]
            after += len(read)
            log = self._shelf.log(stream)

    def _position_of(self, entry: Entry) -> int:
        """Its place in the feed; one behind all others where it could not be given one."""
        spans = self._spans[entry.stream]
        at = bisect_right(spans, entry.seq, key=lambda span: span.first) - 1
        if at < 0 or entry.seq >= spans[at].first + spans[at].length:
            return next(self._later)
        return spans[at].position + entry.seq - spans[at].first


class Search:
    """One search: `step` until it says that it is over, then `hits`."""

    def __init__(self, shelf: Shelf, texts: Texts, query: SearchQuery, sought: Sought) -> None:
        self._shelf = shelf
        self._query = query
        self._sought = sought
        self._steps = texts.steps(query.sessions)
        self._fits: list[Fit] = []

    def step(self) -> bool:
        """Look at some more; whether there may be others."""
        found = next(self._steps, None)
        if found is None:
            return False
        self._fits += fitting(found, self._query, self._sought)
        if len(self._fits) > 2 * MOST_RANKED:
            self._fits = self._newest()
        return True

    def hits(self) -> list[Hit]:
        """What ``Searching.search`` promises."""
        branches = _Branches(self._shelf)
        return hits_among(self._newest(), self._query, self._sought, branches.has)

    def _newest(self) -> list[Fit]:
        return nlargest(MOST_RANKED, self._fits, key=lambda fit: fit[0].position)


class _Branches:
    """What is on the current branch of each session, looked up once a session."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[StreamId, frozenset[int]] = {}

    def has(self, found: Found) -> bool:
        """What `found` is, or is about, is on the branch its session goes on from."""
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
