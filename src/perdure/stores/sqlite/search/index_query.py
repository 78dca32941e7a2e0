"""Searching an SQLite file: candidates out of the index and, behind its mark, out of the log.

The parts of the index give texts that may fit, by their codes; which fit, how they are ranked and
which part of a text is shown is decided in ``session.search``, so that every backend finds the
same. Each namespace has an index of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import msgspec

from perdure.session.ids import EntryId
from perdure.session.search.bm25 import Candidate, rank
from perdure.session.search.matches import counts_in
from perdure.session.search.parts.lookup import Head, Looked, PartLookup, Read, Spoken
from perdure.session.search.parts.pages import DAMAGE, after, role_key, tool_key
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.parts.postings import MOST_TEXTS
from perdure.session.search.phrase_text import counts_in_joined
from perdure.session.search.query import Sought
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.sqlite.branches import is_on_branch
from perdure.stores.sqlite.rows import Tables, is_text
from perdure.stores.sqlite.search.indexer import (
    NO_END,
    Document,
    Mark,
    damage_error,
    document_at,
    entries,
    mark_of,
    stream_key,
    titles,
)

_LOOSE = """
SELECT n, length, filters, said FROM search_loose WHERE namespace = ? AND at >= ? AND at < ?
"""

_PARTS = """
SELECT no, size, last FROM search_part WHERE namespace = ? AND last_at >= ? AND first_at < ?
"""

_PAGE = """
SELECT body FROM search_page WHERE part = ? AND first <= ? ORDER BY first DESC LIMIT 1
"""

_PAGES = """
SELECT body FROM search_page WHERE part = ?1 AND first < ?3 AND first >= coalesce((
    SELECT first FROM search_page WHERE part = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1
), '')
"""

_SAID = """
SELECT id, n, length, said FROM search_text
WHERE id IN (SELECT value FROM json_each(?)) AND at >= ? AND at < ?
"""

_STREAM_NUMBER = "SELECT no FROM stream WHERE namespace = ? AND id = ?"


def hits(tables: Tables, namespace: str, query: SearchQuery, sought: Sought) -> list[Hit]:
    """What ``SearchService.search`` promises."""
    number = tables.value("SELECT no FROM namespace WHERE name = ?", namespace)
    if number is None:
        return []
    search = _Search(tables, number, query, sought)
    found = (search.hit(score, candidate) for score, candidate in rank(search.candidates()))
    wanted = (h for h in found if h is not None and query.is_on_branch in (None, h.is_on_branch))
    return list(islice(wanted, query.limit))


class _Search:
    """One search at one moment of the file."""

    def __init__(self, tables: Tables, namespace: int, query: SearchQuery, sought: Sought) -> None:
        self._tables = tables
        self._namespace = namespace
        self._query = query
        self._sought = sought
        numbers = [_stream_number(tables, namespace, id_) for id_ in query.sessions]
        self._streams = [number for number in numbers if number is not None]

    def candidates(self) -> list[Candidate]:
        """The newest that fit, from both sides of the mark."""
        if self._query.sessions and not self._streams:
            return []
        mark = mark_of(self._tables, self._namespace)
        found = list(self._behind(mark))
        is_empty = mark.entry == mark.stream == 0
        try:
            return self._find_candidates(found, is_empty=is_empty)
        except DAMAGE as error:
            raise damage_error(self._tables) from error

    def hit(self, score: float, candidate: Candidate) -> Hit | None:
        """The hit that `candidate` is; None when the log no longer holds it."""
        document = document_at(self._tables, self._namespace, candidate.position)
        if document is None:
            return None
        entry = document.entry
        snippet = snippet_of(document.what.text, self._sought.phrases)
        return Hit(
            stream=document.stream_id,
            entry=None if entry is None else entry.id,
            about=None if entry is None else entry.about,
            role=document.what.role,
            at=document.at,
            snippet=snippet.text,
            marks=snippet.marks,
            score=score,
            is_on_branch=self._is_on_branch(document),
        )

    # -- out of the index

    def _find_candidates(self, found: list[Candidate], *, is_empty: bool) -> list[Candidate]:
        """The newest of those `found` and those in the index."""
        filters, span = self._filters(), self._span()
        heads: list[Head] = []
        if not is_empty:
            found += self._loose(filters, span)
            heads = [Head(*row) for row in self._tables.rows(_PARTS, self._namespace, *span)]
        finding = PartLookup(Asked(self._sought, filters), heads, found, MOST_RANKED)
        while step := finding.step():
            looked = [each for each in step if isinstance(each, Head)]
            if looked:
                exact, begun = (
                    self._exact(looked, finding.asked),
                    self._prefix_pages(looked, finding.asked),
                )
                finding.look_up(looked, exact, begun)
            else:
                finding.read(self._spoken([each for each in step if isinstance(each, Read)], span))
        return finding.candidates()

    def _loose(self, filters: list[list[str]], span: tuple[int, int]) -> Iterator[Candidate]:
        groups = [frozenset(group) for group in filters]
        for position, length, own, said in self._tables.rows(_LOOSE, self._namespace, *span):
            if any(group.isdisjoint(own.split()) for group in groups):
                continue
            counts = counts_in_joined(said, self._sought)
            if counts is not None:
                yield Candidate(position, counts, length)

    def _exact(self, heads: Sequence[Head], asked: Asked) -> Iterator[Looked]:
        for head in heads:
            for key in asked.keys:
                for row in self._tables.run(_PAGE, (head.part, key)).fetchall():
                    yield Looked(head.part, key, row[0])

    def _prefix_pages(self, heads: Sequence[Head], asked: Asked) -> Iterator[Looked]:
        for head in heads:
            for prefix in asked.prefixes:
                values = (head.part, prefix, after(prefix))
                for row in self._tables.run(_PAGES, values).fetchall():
                    yield Looked(head.part, prefix, row[0])

    def _spoken(self, wanted: Iterable[Read], span: tuple[int, int]) -> Iterator[Spoken]:
        ids = [each.part * MOST_TEXTS + each.number for each in wanted]
        listed = msgspec.json.encode(ids).decode()
        for place, position, length, said in self._tables.rows(_SAID, listed, *span):
            part, number = divmod(place, MOST_TEXTS)
            yield Spoken(part, number, position, length, said)

    def _span(self) -> tuple[int, int]:
        since, until = self._query.since, self._query.until
        return (-NO_END if since is None else since, NO_END if until is None else until)

    def _filters(self) -> list[list[str]]:
        """Of each group a text must have one of the keys."""
        groups = [
            [stream_key(number) for number in self._streams],
            [role_key(role) for role in self._query.roles],
            [tool_key(tool) for tool in self._query.tools],
        ]
        return [group for group in groups if group]

    # -- out of the log

    def _behind(self, mark: Mark) -> Iterator[Candidate]:
        """What fits and is not indexed."""
        place = (self._tables, self._namespace)
        behind = chain(entries(*place, mark.entry), titles(*place, mark.stream))
        for document in behind:
            if self._is_wanted(document):
                words = terms(document.what.text)
                counts = counts_in(words, self._sought)
                if counts is not None:
                    yield Candidate(document.row, counts, len(words))

    def _is_wanted(self, document: Document) -> bool:
        query, what = self._query, document.what
        return (
            (not query.sessions or document.stream in self._streams)
            and (not query.roles or what.role in query.roles)
            and (not query.tools or any(tool in query.tools for tool in what.tools))
            and (query.since is None or document.at >= query.since)
            and (query.until is None or document.at < query.until)
        )

    def _is_on_branch(self, document: Document) -> bool:
        entry = document.entry
        target: EntryId | None = None
        if entry is not None:
            target = entry.id if entry.lane == "tree" else entry.about
        if target is None:
            return True
        place = self._tables.place(document.stream, target)
        node = None if place is None else self._tables.node_of(*place)
        leaf = self._tables.value("SELECT leaf FROM stream WHERE no = ?", document.stream)
        if node is None or leaf is None:
            return False
        return is_on_branch(self._tables, node, self._tables.node_at(leaf))


def _stream_number(tables: Tables, namespace: int, stream: str) -> int | None:
    return tables.value(_STREAM_NUMBER, namespace, stream) if is_text(stream) else None
