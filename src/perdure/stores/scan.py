"""Search without an index: match each text by the rules that all backends share.

A backend yields the searchable texts and checks which texts are on a branch; this module and
``session.search`` match, rank and display the texts. Backends with an index scan only the texts
that the index does not contain yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from perdure.session.entries import Entry
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.search.bm25 import Candidate, rank
from perdure.session.search.matches import counts_in
from perdure.session.search.query import Sought
from perdure.session.search.searchable import Searchable, searchable_of, searchable_title
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import Hit, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.validation import TIMES


class Found(NamedTuple):
    """A searchable text of an entry, or, if `entry` is None, the title of a stream.

    `position` is the position of the entry. A title has a negative position, which is before all
    entries. The title of the oldest stream has the highest position of all titles. `at` is the time
    of the message, or, for other texts, the time when the text was stored. `subject` is the subject
    of the stream.
    """

    position: int
    stream: StreamId
    at: int
    entry: Entry | None
    what: Searchable
    subject: str | None

    @property
    def target(self) -> EntryId | None:
        """Return the entry that a branch must contain for this text to be on the branch.

        None means that the text is on every branch.
        """
        if self.entry is None:
            return None
        return self.entry.id if self.entry.lane == "tree" else self.entry.about


Fit = tuple[Found, Candidate]
"""A matching text, and the values that its rank is computed from."""


def found_entry(position: int, entry: Entry, subject: str | None) -> Found | None:
    """Return the searchable text of `entry`, whose stream is about `subject`.

    Return None if the entry has no searchable text.
    """
    what = searchable_of(entry)
    if what is None:
        return None
    said_at = what.said_at
    at = entry.at if said_at is None or said_at not in TIMES else said_at
    return Found(position, entry.stream, at, entry, what, subject)


def found_title(number: int, header: StreamHeader) -> Found | None:
    """Return the title of a new stream; `number` (from 1) is the stream's rank by age."""
    what = searchable_title(header)
    if what is None:
        return None
    return Found(-number, header.id, header.created_at, None, what, header.subject)


def fitting(texts: Iterable[Found], query: SearchQuery, sought: Sought) -> Iterator[Fit]:
    """Yield the `texts` that match the query, without filtering by branches."""
    for found in texts:
        if not is_wanted(found, query):
            continue
        words = terms(found.what.text)
        counts = counts_in(words, sought)
        if counts is not None:
            yield found, Candidate(found.position, counts, len(words))


def hits_among(
    fits: Sequence[Fit],
    query: SearchQuery,
    sought: Sought,
    is_on_branch: Callable[[Found], bool],
) -> list[Hit]:
    """Return the hits of ``SearchService.hits``, given the newest ``MOST_RANKED`` matches."""
    hits = (
        hit_of(found, score, sought, is_on_branch=is_on_branch(found))
        for found, score in best_of(fits)
    )
    wanted = (hit for hit in hits if query.is_on_branch in (None, hit.is_on_branch))
    return list(islice(wanted, query.limit))


def best_of(fits: Sequence[Fit]) -> list[tuple[Found, float]]:
    """Return the texts with their scores, best first."""
    texts = {candidate.position: found for found, candidate in fits}
    found = rank([candidate for _, candidate in fits])
    return [(texts[candidate.position], score) for score, candidate in found]


def hit_of(found: Found, score: float, sought: Sought, *, is_on_branch: bool) -> Hit:
    """Return `found` as a search hit, with its score and a snippet."""
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
        is_on_branch=is_on_branch,
    )


def is_wanted(found: Found, query: SearchQuery) -> bool:
    """Return True if `found` passes all filters of `query` except `is_on_branch`."""
    return (
        (not query.roles or found.what.role in query.roles)
        and (not query.sessions or found.stream in query.sessions)
        and (not query.tools or any(tool in query.tools for tool in found.what.tools))
        and (query.since is None or found.at >= query.since)
        and (query.until is None or found.at < query.until)
    )
