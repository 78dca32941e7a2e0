"""Searching an SQLite file: candidates out of the index and, behind its mark, out of the log.

The index gives only rows of the namespace, since every row carries its namespace as a word. What
the rows mean, how they are ranked and which part of a text is shown is decided in
``session.search``, so that every backend finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import apsw

from perdure.session.ids import EntryId
from perdure.session.search.matching import counts_in
from perdure.session.search.query import Phrase, Sought
from perdure.session.search.ranking import Candidate, ranked
from perdure.session.search.snippets import snippet_of
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.sqlite.branches import is_on_branch
from perdure.stores.sqlite.rows import Tables, is_text
from perdure.stores.sqlite.search.counting import NAME
from perdure.stores.sqlite.search.indexing import (
    NO_END,
    Document,
    Mark,
    damaged,
    document_at,
    entries,
    mark_of,
    namespace_word,
    role_word,
    stream_word,
    titles,
    tool_word,
)

_MATCHES = f"""
SELECT search.rowid, {NAME}(search, ?, ?) FROM search
WHERE search MATCH ? ORDER BY search.rowid DESC LIMIT ?
"""  # noqa: S608 - put together from constants

_MATCHES_IN_TIME = f"""
SELECT search.rowid, {NAME}(search, ?, ?)
FROM search CROSS JOIN search_time AS t ON t.n = search.rowid
WHERE search MATCH ? AND t.at >= ? AND t.at < ? ORDER BY search.rowid DESC LIMIT ?
"""  # noqa: S608 - put together from constants

_STREAM_NUMBER = "SELECT no FROM stream WHERE namespace = ? AND id = ?"


def hits(tables: Tables, namespace: str, query: SearchQuery, sought: Sought) -> list[Hit]:
    """What ``Searching.search`` promises."""
    number = tables.value("SELECT no FROM namespace WHERE name = ?", namespace)
    if number is None:
        return []
    search = _Search(tables, number, query, sought)
    found = (search.hit(score, candidate) for score, candidate in ranked(search.candidates()))
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
        mark = mark_of(self._tables)
        is_empty = mark.entry == mark.stream == 0
        found = [*self._behind(mark), *(() if is_empty else self._indexed())]
        found.sort(key=lambda candidate: -candidate.position)
        return found[:MOST_RANKED]

    def hit(self, score: float, candidate: Candidate) -> Hit | None:
        """The hit that `candidate` is; None when the log no longer holds it."""
        document = document_at(self._tables, candidate.position)
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

    def _indexed(self) -> Iterator[Candidate]:
        filters = self._filters()
        first = sum(map(len, filters))
        span = (first, first + len(self._sought.phrases))
        match = _match(filters, self._sought)
        since, until = self._query.since, self._query.until
        sql, time = _MATCHES, ()
        if since is not None or until is not None:
            first_ms = -NO_END if since is None else since
            sql, time = _MATCHES_IN_TIME, (first_ms, NO_END if until is None else until)
        try:
            for row, told in self._tables.rows(sql, *span, match, *time, MOST_RANKED):
                length, *counts = map(int, told.split())
                yield Candidate(row, tuple(counts), length)
        except apsw.CorruptError as error:
            raise damaged(self._tables, error) from error

    def _filters(self) -> list[list[str]]:
        """Of each group a row must have one of the words in its place."""
        groups = [
            [namespace_word(self._namespace)],
            [stream_word(number) for number in self._streams],
            [role_word(role) for role in self._query.roles],
            [tool_word(tool) for tool in self._query.tools],
        ]
        return [group for group in groups if group]

    # -- out of the log

    def _behind(self, mark: Mark) -> Iterator[Candidate]:
        """What fits and is not indexed."""
        behind = chain(entries(self._tables, mark.entry), titles(self._tables, mark.stream))
        for document in behind:
            if self._is_wanted(document):
                words = terms(document.what.text)
                counts = counts_in(words, self._sought)
                if counts is not None:
                    yield Candidate(document.row, counts, len(words))

    def _is_wanted(self, document: Document) -> bool:
        query, what = self._query, document.what
        return (
            document.namespace == self._namespace
            and (not query.sessions or document.stream in self._streams)
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


def _match(filters: Sequence[Sequence[str]], sought: Sought) -> str:
    """The query in the language of FTS5: filters first, so that their phrases are numbered so."""
    places = " AND ".join(f"({' OR '.join(map(_quoted, group))})" for group in filters)
    clauses = " AND ".join(f"({_any_of(clause)})" for clause in sought.clauses)
    match = f"place : ({places}) AND text : ({clauses})"
    return f"({match}) NOT text : ({_any_of(sought.unwanted)})" if sought.unwanted else match


def _any_of(phrases: Iterable[Phrase]) -> str:
    return " OR ".join(map(_phrase, phrases))


def _phrase(phrase: Phrase) -> str:
    return _quoted(" ".join(phrase.terms)) + (" *" if phrase.is_prefix else "")


def _quoted(words: str) -> str:
    """Terms hold letters, digits and characters that mean nothing to FTS5; no quotes."""
    return f'"{words}"'
