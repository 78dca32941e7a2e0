"""Run a search: matches come from the index and, for texts not yet indexed, from the log.

The parts of the index find candidate texts by the stored codes of their words. ``session.search``
defines matching, ranking and snippets, so every store returns the same hits. Only the texts of hits
are read from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.errors import SearchIndexDamaged
from perdure.session.search.bm25 import Candidate, rank
from perdure.session.search.parts.lookup import Head, PartLookup, Read
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.phrase_text import counts_in_joined
from perdure.session.search.query import Sought
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.scan import Found, fitting, hit_of, is_wanted
from perdure.stores.search.index_keys import filters_of
from perdure.stores.search.rows import NO_END, IndexedLog, IndexReader, LooseRow, Span

READ_AT_ONCE = 128
"""Maximum number of hits that one read takes from the log."""


async def hits(
    index: IndexReader, log: IndexedLog, query: SearchQuery, sought: Sought
) -> list[Hit]:
    """Return the hits, with the guarantees of ``SearchService.hits``."""
    search = _Search(index, log, query, sought)
    return await search.hits(rank(await search.candidates()))


class _Search:
    """Runs one search in one snapshot of the store."""

    def __init__(
        self, index: IndexReader, log: IndexedLog, query: SearchQuery, sought: Sought
    ) -> None:
        self._index = index
        self._log = log
        self._query = query
        self._sought = sought
        self._filters = filters_of(query)
        since, until = query.since, query.until
        self._span: Span = (
            -NO_END if since is None else since,
            NO_END if until is None else until,
        )
        self._read: dict[int, Found] = {}

    async def candidates(self) -> list[Candidate]:
        """Return the newest matches, both among indexed texts and among texts not yet indexed.

        Raises: SearchIndexDamaged.
        """
        mark = (await self._index.mark()).usable
        found: list[Candidate] = []
        async for texts in self._log.behind(mark):
            found += await self._fitting(texts)
        try:
            return await self._with_indexed(found, is_empty=mark.entry == mark.stream == 0)
        except DAMAGE as error:
            raise SearchIndexDamaged(self._log.address) from error

    async def hits(self, best: Sequence[tuple[float, Candidate]]) -> list[Hit]:
        """Return the first of `best` that pass the filters.

        The call reads only as many texts as needed.
        """
        query, hits = self._query, list[Hit]()
        step = READ_AT_ONCE
        if query.is_on_branch is None:
            step = min(step, max(query.limit, 1))
        for start in range(0, len(best), step):
            if len(hits) >= query.limit:
                break
            found = await self._texts(best[start : start + step])
            flags = await self._log.on_branch([text for _, text in found])
            hits += await self._log.compute(lambda: self._hits_of(found, flags))  # noqa: B023 - it is awaited here
        return hits[: max(query.limit, 0)]

    async def _fitting(self, texts: Sequence[Found]) -> list[Candidate]:
        fits = await self._log.compute(lambda: list(fitting(texts, self._query, self._sought)))
        if len(self._read) < MOST_RANKED:
            self._read.update((found.position, found) for found, _ in fits)
        return [candidate for _, candidate in fits]

    async def _with_indexed(self, found: list[Candidate], *, is_empty: bool) -> list[Candidate]:
        """Return the newest candidates from `found` and from the index together."""
        index, span, heads = self._index, self._span, list[Head]()
        if not is_empty:
            rows = await index.loose(span)
            found += await self._log.compute(lambda: self._loose(rows))
            heads = await index.heads(span)
        finding = PartLookup(Asked(self._sought, self._filters), heads, found, MOST_RANKED)
        while step := finding.step():
            looked = [each for each in step if isinstance(each, Head)]
            if looked:
                parts, asked = [head.part for head in looked], finding.asked
                pages = await index.pages(parts, asked.keys)
                begun = await index.pages_from(parts, asked.prefixes) if asked.prefixes else []
                finding.look_up(looked, pages, begun)
            else:
                wanted = [each for each in step if isinstance(each, Read)]
                finding.read(await index.blocks(wanted), *span)
        return finding.candidates()

    def _loose(self, rows: Iterable[LooseRow]) -> list[Candidate]:
        groups = [frozenset(group) for group in self._filters if group]
        return [
            Candidate(row.position, counts, row.length)
            for row in rows
            if not groups or not any(group.isdisjoint(row.filters.split()) for group in groups)
            if (counts := counts_in_joined(row.words, self._sought)) is not None
        ]

    async def _texts(self, best: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Found]]:
        """Return the texts of `best`.

        Only texts that this search has not read yet are read from the log.
        """
        unread = [each.position for _, each in best if each.position not in self._read]
        if unread:
            read = await self._log.texts_at(unread)
            self._read.update((found.position, found) for found in read)
        texts = [(score, self._read.get(each.position)) for score, each in best]
        return [(score, text) for score, text in texts if text and is_wanted(text, self._query)]

    def _hits_of(self, found: Iterable[tuple[float, Found]], flags: Iterable[bool]) -> list[Hit]:
        return [
            hit_of(text, score, self._sought, is_on_branch=flag)
            for (score, text), flag in zip(found, flags, strict=True)
            if self._query.is_on_branch in (None, flag)
        ]
