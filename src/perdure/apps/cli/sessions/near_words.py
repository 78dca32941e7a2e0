"""Finds words in the log that resemble the words of a search without hits."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

import msgspec

from perdure.client.lookup.search_hits import hits_in_force
from perdure.client.store import Store
from perdure.session.search.query import sought_in
from perdure.session.search.values import SearchQuery
from perdure.session.search.words import terms

_SHORTEST = 4
"""Minimum length of a word that is compared."""

_MOST_WORDS = 4
_MOST_NEAR = 3
_READ = 200
_LIKE = 0.7


async def near_words(store: Store, query: SearchQuery | None) -> list[str]:
    """Return similar words from the log for the words of `query` that no text contains.

    Only words with the same first two letters are compared, in texts that match the filters of
    `query`. `query` is None if no session can match the filters.
    """
    if query is None:
        return []
    words = [
        phrase.terms[0]
        for phrase in sought_in(query.text).phrases
        if len(phrase.terms) == 1 and not phrase.is_prefix and len(phrase.terms[0]) >= _SHORTEST
    ]
    found: dict[str, None] = {}
    for word in list(dict.fromkeys(words))[:_MOST_WORDS]:
        if not await _hits(store, query, f'"{word}"', 1):
            found.update(dict.fromkeys(await _near(store, query, word)))
    return list(found)


async def _near(store: Store, query: SearchQuery, word: str) -> list[str]:
    for begin in _beginnings(word):
        known: set[str] = set()
        for snippet in await _hits(store, query, f"{begin}*", _READ):
            known.update(snippet)
        if near := get_close_matches(word, sorted(known), _MOST_NEAR, _LIKE):
            return near
    return []


def _beginnings(word: str) -> Iterator[str]:
    """Yield prefixes of `word` to search, longest first: longer prefixes match fewer words."""
    yield from (word[:size] for size in sorted({len(word) * 2 // 3, 3, 2}, reverse=True))


async def _hits(store: Store, query: SearchQuery, text: str, limit: int) -> list[list[str]]:
    """Return the words that match `text` in each hit."""
    wanted = msgspec.structs.replace(query, text=text, limit=limit)
    hits = await hits_in_force(store.backend, wanted)
    return [
        [term for first, last in hit.marks for term in terms(hit.snippet[first:last])]
        for hit in hits
    ]
