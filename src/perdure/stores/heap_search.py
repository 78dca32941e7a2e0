"""Searching a heap: every entry is looked at, the newest first, by the rules all backends share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.search.matching import counts_in
from perdure.session.search.query import Sought
from perdure.session.search.ranking import Candidate, ranked
from perdure.session.search.searchable import Searchable, searchable_of, searchable_title
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.heap import Heap, is_on_branch


class Found(NamedTuple):
    """A text that can be found: an entry's, or with `entry` None the title of a stream.

    `position` is that of the entry; titles come before all entries, -1 the first of them.
    """

    position: int
    stream: StreamId
    at: int
    entry: Entry | None
    what: Searchable


def searchable_texts(heap: Heap) -> Iterator[Found]:
    """Everything that can be found, the newest entry first and then the titles."""
    for position in range(len(heap.log), 0, -1):
        entry = heap.log[position - 1]
        if heap.streams[entry.stream].state.header.kind != "session":
            continue
        what = searchable_of(entry)
        if what is not None:
            yield Found(position, entry.stream, entry.at, entry, what)
    for number, held in enumerate(heap.streams.values(), 1):
        header = held.state.header
        what = searchable_title(header)
        if what is not None:
            yield Found(-number, header.id, header.created_at, None, what)


def hits_in(heap: Heap, query: SearchQuery, sought: Sought) -> list[Hit]:
    """What ``Searching.search`` promises."""
    found: dict[int, Found] = {}
    candidates: list[Candidate] = []
    for each, candidate in islice(_fitting(heap, query, sought), MOST_RANKED):
        found[candidate.position] = each
        candidates.append(candidate)
    hits = (_hit(heap, found[each.position], score, sought) for score, each in ranked(candidates))
    wanted = (hit for hit in hits if query.is_on_branch in (None, hit.is_on_branch))
    return list(islice(wanted, query.limit))


def _fitting(heap: Heap, query: SearchQuery, sought: Sought) -> Iterator[tuple[Found, Candidate]]:
    for found in searchable_texts(heap):
        if not _is_wanted(found, query):
            continue
        words = terms(found.what.text)
        counts = counts_in(words, sought)
        if counts is not None:
            yield found, Candidate(found.position, counts, len(words))


def _is_wanted(found: Found, query: SearchQuery) -> bool:
    """The filters let it through, but for the one on branches."""
    return (
        (not query.roles or found.what.role in query.roles)
        and (not query.sessions or found.stream in query.sessions)
        and (not query.tools or any(tool in query.tools for tool in found.what.tools))
        and (query.since is None or found.at >= query.since)
        and (query.until is None or found.at < query.until)
    )


def _hit(heap: Heap, found: Found, score: float, sought: Sought) -> Hit:
    entry = found.entry
    snippet = snippet_of(found.what.text, sought.phrases)
    return Hit(
        stream=found.stream,
        entry=None if entry is None else entry.id,
        about=None if entry is None else entry.about,
        role=found.what.role,
        at=found.at,
        snippet=snippet.text,
        marks=snippet.marks,
        score=score,
        is_on_branch=_is_on_branch(heap, found.stream, entry),
    )


def _is_on_branch(heap: Heap, stream: StreamId, entry: Entry | None) -> bool:
    target: EntryId | None = None
    if entry is not None:
        target = entry.id if entry.lane == "tree" else entry.about
    return target is None or is_on_branch(heap, target, heap.streams[stream].state.leaf)
