"""Asking the index of a folder: its parts, and what of the files is in none of them yet.

Which texts fit, how they are ranked and which piece of a text is shown is decided in
``session.search``, so that every backend finds the same. Of the files only the lines of hits are
read, and what they grew by since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.session.search.bm25 import Candidate, rank
from perdure.session.search.matches import counts_in
from perdure.session.search.parts.lookup import Head, Looked, PartLookup, Read, Spoken
from perdure.session.search.parts.pages import role_key, tool_key
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.phrase_text import counts_in_joined
from perdure.session.search.query import sought_in
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.session.search.words import terms
from perdure.stores.jsonl.search.branch_members import Branch
from perdure.stores.jsonl.search.catalogue import Catalogue, Known, Written
from perdure.stores.jsonl.search.files import IndexFiles
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.part_file import EVERYWHERE, PartFile
from perdure.stores.jsonl.search.scan import FolderScan
from perdure.stores.jsonl.search.texts import (
    found_at,
    found_in,
    session_key,
    target_of,
)
from perdure.stores.scan import Found, fitting, found_title, hit_of

MOST_BEHIND = 512
"""Where more entries are not indexed, and cannot be, the files are looked through instead."""

MOST_OPEN = 64
"""Files of parts that are open at a time."""


INFINITE = float("inf")


class Untrue(Exception):
    """What the index says of a session is not in its file, though that looks as if it were."""

    def __init__(self, stream: StreamId) -> None:
        super().__init__(stream)
        self.stream = stream


def hits_by(index: Index, query: SearchQuery, *, is_best: bool) -> list[Hit] | None:
    """What ``SearchService.search`` promises; None where the index cannot tell.

    None, too, where it should be brought up to date first, unless it `is_best` that can be.

    Raises: StoreReadOnly, StoreFull, StoreUnavailable; PartGone; Untrue; where a part is damaged,
    what ``pages.DAMAGE`` is, and OSError.
    """
    catalogue, survey = index.survey()
    if survey.stale or not survey.is_placed or survey.count > MOST_BEHIND:
        return None
    if survey.is_due and not is_best:
        return None
    search = _Search(index, catalogue, survey, query)
    try:
        found = (search.hit(score, candidate) for score, candidate in rank(search.candidates()))
        return list(islice((hit for hit in found if hit is not None), query.limit))
    finally:
        search.close()


class _Read(NamedTuple):
    """Where a candidate came from: its part, its number there, and its time."""

    part: int
    number: int
    at: int


class _Search:
    """One search at one moment of the folder."""

    def __init__(
        self, index: Index, catalogue: Catalogue, survey: FolderScan, query: SearchQuery
    ) -> None:
        self._shelf = index.shelf
        self._catalogue = catalogue
        self._survey = survey
        self._query = query
        self._sought = sought_in(query.text)
        self._parts = _Parts(index.files, catalogue)
        behind = {each.known.number: each.now(index.shelf) for each in survey.behind}
        self._sessions = {
            each.number: behind.get(each.number, each)
            for each in survey.sessions
            if not query.sessions or each.stream in query.sessions
        }
        self._branches: dict[int, Branch] = {}
        self._read: dict[int, _Read] = {}
        self._found: dict[int, tuple[Found, int, int]] = {}  # with their sessions and targets
        self._titled: dict[int, Known] = {}

    def candidates(self) -> list[Candidate]:
        """The newest that fit, out of the index and out of the files."""
        if not self._sessions:
            return []
        since, until = self._span()
        heads = [
            Head(number, piece.texts, piece.last)
            for number, piece in enumerate(self._catalogue.pieces)
            if piece.last_at >= since and piece.first_at < until
        ]
        found = [*self._behind(), *self._too_long(), *self._titles()]
        finding = PartLookup(Asked(self._sought, self._filters()), heads, found, MOST_RANKED)
        while step := finding.step():
            looked = [each for each in step if isinstance(each, Head)]
            if looked:
                exact, begun = self._parts.pages(looked, finding.asked)
                finding.look_up(looked, exact, begun)
            else:
                finding.read(self._spoken([each for each in step if isinstance(each, Read)]))
        return finding.candidates()

    def hit(self, score: float, candidate: Candidate) -> Hit | None:
        """The hit that `candidate` is.

        None where it is not on the branch that is asked for, or its file lost it meanwhile.
        """
        read = self._read.get(candidate.position)
        if read is not None:
            return self._hit_of_part(score, candidate.position, read)
        if candidate.position in self._titled:
            return self._hit_of_title(score, candidate.position)
        found, session, target = self._found[candidate.position]
        return self._hit(score, found, is_on_branch=self._is_on_branch(session, target))

    def close(self) -> None:
        """Let go of the files."""
        self._parts.close()

    # -- hits

    def _hit_of_part(self, score: float, position: int, read: _Read) -> Hit | None:
        place = self._parts.part(read.part).place(read.number)
        is_on_branch = self._is_on_branch(place.session, place.target)
        if self._query.is_on_branch not in (None, is_on_branch):
            return None  # its line need not be read
        found = self._found_at(Written(position, read.at, place))
        if found is None:
            return None
        if counts_in(terms(found.what.text), self._sought) is None:
            raise Untrue(found.stream)
        return self._hit(score, found, is_on_branch=is_on_branch)

    def _hit_of_title(self, score: float, position: int) -> Hit | None:
        known = self._titled[position]
        standing = self._shelf.standing(known.stream)
        found = None if standing is None else found_title(-position, standing.header)
        return None if found is None else self._hit(score, found, is_on_branch=True)

    def _hit(self, score: float, found: Found, *, is_on_branch: bool) -> Hit | None:
        if self._query.is_on_branch not in (None, is_on_branch):
            return None
        return hit_of(found, score, self._sought, is_on_branch=is_on_branch)

    def _is_on_branch(self, session: int, target: int) -> bool:
        if target < 0:
            return target == EVERYWHERE
        branch = self._branches.get(session)
        if branch is None:
            known = self._sessions[session]
            branch = self._branches[session] = known.branching.branch(known.leaf)
        return branch.has(target)

    def _found_at(self, written: Written) -> Found | None:
        return found_at(self._shelf, self._sessions[written.place.session], written)

    # -- out of the parts

    def _spoken(self, wanted: Iterable[Read]) -> Iterator[Spoken]:
        since, until = self._span()
        numbers: dict[int, list[int]] = {}
        for each in wanted:
            numbers.setdefault(each.part, []).append(each.number)
        for part, some in numbers.items():
            for number, said in self._parts.part(part).texts_with_codes(some):
                if since <= said.at < until:
                    self._read[said.position] = _Read(part, number, said.at)
                    yield Spoken(part, number, said.position, said.length, said.codes, said.at)

    def _span(self) -> tuple[float, float]:
        since, until = self._query.since, self._query.until
        return (-INFINITE if since is None else since, INFINITE if until is None else until)

    def _filters(self) -> list[list[str]]:
        """Of each group a text must have one of the keys."""
        return [
            [session_key(number) for number in self._sessions] if self._query.sessions else [],
            [role_key(role) for role in self._query.roles],
            [tool_key(tool) for tool in self._query.tools],
        ]

    # -- out of the files

    def _behind(self) -> Iterator[Candidate]:
        for each in self._survey.behind:
            number = each.known.number
            log = each.open_log(self._shelf) if number in self._sessions else None
            if log is not None:
                seqs = range(each.known.count, min(each.end, len(log.rows)))
                with suppress(SessionNotFound):  # erased meanwhile
                    texts = found_in(log, seqs, each.places)
                    for found, candidate in fitting(texts, self._query, self._sought):
                        self._found[found.position] = found, number, target_of(log, found)
                        yield candidate

    def _too_long(self) -> Iterator[Candidate]:
        for long in self._catalogue.long:
            number, target = long.place.session, long.place.target
            found = None
            if number in self._sessions:
                found = self._found_at(long)
            texts = [] if found is None else [found]
            for each, candidate in fitting(texts, self._query, self._sought):
                self._found[each.position] = each, number, target
                yield candidate

    def _titles(self) -> Iterator[Candidate]:
        """The titles that fit: before all entries, that of the oldest session last."""
        query, (since, until) = self._query, self._span()
        if query.tools or (query.roles and "title" not in query.roles):
            return
        found = [
            (known, counts)
            for known in self._sessions.values()
            if known.title
            and since <= known.created_at < until
            and (counts := counts_in_joined(known.title, self._sought)) is not None
        ]
        found.sort(key=lambda each: (each[0].created_at, each[0].stream))
        for number, (known, counts) in enumerate(found, 1):
            self._titled[-number] = known
            yield Candidate(-number, counts, len(known.title.split()))


class _Parts:
    """The parts of an index, opened as they are asked for."""

    def __init__(self, files: IndexFiles, catalogue: Catalogue) -> None:
        self._files = files
        self._pieces = catalogue.pieces
        self._open: dict[int, PartFile] = {}

    def part(self, number: int) -> PartFile:
        """The part of that number."""
        file = self._open.pop(number, None)
        if file is None:
            while len(self._open) >= MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            file = self._files.part(self._pieces[number])
        self._open[number] = file
        return file

    def close(self) -> None:
        """Let go of them."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def pages(self, heads: Sequence[Head], asked: Asked) -> tuple[list[Looked], list[Looked]]:
        """The pages that may keep the keys that are asked for, and those with the prefixes."""
        exact: list[Looked] = []
        begun: list[Looked] = []
        for head in heads:
            part = self.part(head.part)
            for key in asked.keys:
                body = part.page(key)
                if body is not None:
                    exact.append(Looked(head.part, key, body))
            for prefix in asked.prefixes:
                begun += [Looked(head.part, prefix, body) for body in part.pages(prefix)]
        return exact, begun
