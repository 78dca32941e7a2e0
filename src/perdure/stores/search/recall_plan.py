"""Run a recall: update the corpus, count the question's words, rank, and read the best texts.

``perdure.memory.ranking``, a layer above the stores, ranks the texts; a store only counts words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.errors import SearchIndexDamaged
from perdure.session.search.parts.lookup import Head, Looked
from perdure.session.search.parts.pages import DAMAGE, beginning
from perdure.stores.scan import Found
from perdure.stores.search.corpus import FILTERS, Corpus, Counts, WordClass
from perdure.stores.search.index_keys import text_of
from perdure.stores.search.rows import NO_END, IndexedLog, IndexReader, Mark, Span, run_now
from perdure.stores.search.vector_plan import follow
from perdure.stores.search.vectors import VectorModel, VectorRows

_ALWAYS: Span = (-NO_END, NO_END)
_SOME = 256


class Ranked(NamedTuple):
    """A text of a corpus, its score, and the reasons for the score with their numbers.

    `nearby` are the keys of the word classes that the text or one of its neighbours contains.
    """

    text: int
    score: float
    reasons: dict[str, float]
    nearby: frozenset[str] = frozenset()


Ranking = Callable[[Corpus, Sequence[Counts]], Sequence[Ranked]]
"""A function that returns the best texts of a corpus, best first."""


class Recalled(NamedTuple):
    """A text that was recalled."""

    found: Found
    ranked: Ranked


class Asked(NamedTuple):
    """The words of a question, the ranking, and the model of the question's vector, if any."""

    words: Sequence[WordClass]
    ranking: Ranking
    model: VectorModel | None = None


class RecallCache:
    """Keeps the corpus of a namespace between recalls.

    Only one recall at a time may use the cache.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.corpus = Corpus()
        self.mark = Mark()

    def follow(self, mark: Mark) -> Corpus:
        """Return the corpus.

        If a text was removed from the index since the last recall, return a new, empty corpus,
        because texts cannot be removed from a corpus.
        """
        if (mark.version, mark.forgotten) != (self.mark.version, self.mark.forgotten):
            self.corpus, self.mark = Corpus(), mark._replace(entry=0, stream=0)
        return self.corpus


async def recalled(
    index: IndexReader,
    log: IndexedLog,
    rows: VectorRows | None,
    cache: RecallCache,
    asked: Asked,
) -> list[Recalled]:
    """Implement ``SearchService.recall``. Raises: SearchIndexDamaged."""
    mark = (await index.mark()).usable
    corpus = cache.follow(mark)
    try:
        heads = await index.heads(_ALWAYS) if mark.entry or mark.stream else []
        await _follow_parts(index, corpus, heads)
        await _follow_loose(index, corpus, cache.mark.entry, mark)
        await _count(index, corpus, heads, asked.words)
    except DAMAGE as error:
        cache.follow(Mark(-1))
        raise SearchIndexDamaged(log.address) from error
    cache.mark = mark
    async for texts in log.behind(mark):
        await log.compute(lambda: add(corpus, texts))  # noqa: B023 - it is awaited here
    if asked.model is not None and rows is not None:
        await follow(rows, corpus, asked.model)
    best = await log.compute(lambda: _ranked(corpus, heads, asked))
    read = await log.texts_at([corpus.positions[each.text] for each in best])
    found = {each.position: each for each in read}
    return [
        Recalled(found[corpus.positions[each.text]], each)
        for each in best
        if corpus.positions[each.text] in found
    ]


def scanned(
    corpus: Corpus, texts: Iterable[Found], rows: VectorRows | None, asked: Asked
) -> Sequence[Ranked]:
    """Add the new texts to `corpus`, and rank it, for a store without an index.

    `texts` are newest first.
    """
    new: list[Found] = []
    for found in texts:
        if corpus.has(found.position):
            break
        new.append(found)
    add(corpus, new[::-1])
    if asked.model is not None and rows is not None:
        run_now(follow(rows, corpus, asked.model))
    return _ranked(corpus, (), asked)


async def _follow_parts(index: IndexReader, corpus: Corpus, heads: Sequence[Head]) -> None:
    for head in corpus.unknown(heads):
        pages = await index.pages_from([head.part], [FILTERS])
        filters = [kept for page in pages for kept in beginning(page.body, FILTERS)]
        corpus.add_part(head, await index.blocks_of(head.part), filters)


async def _follow_loose(index: IndexReader, corpus: Corpus, after: int, mark: Mark) -> None:
    while after < mark.entry:
        rows = await index.loose_after(after, _SOME)
        for row in rows:
            if not corpus.has(row.position) and row.position > 0:
                corpus.add_text(row.text)
        if len(rows) < _SOME:
            return
        after = rows[-1].position


async def _count(
    index: IndexReader, corpus: Corpus, heads: Sequence[Head], words: Sequence[WordClass]
) -> None:
    wanted = {word: uncounted for word in words if (uncounted := corpus.uncounted(heads, word))}
    pages: dict[tuple[int, str], list[Looked]] = {}
    for parts, asked in _alike(wanted):
        for page in await index.pages_from(parts, asked):
            pages.setdefault((page.part, page.key), []).append(page)
    for word, uncounted in wanted.items():
        for head in uncounted:
            read = pages.get((head.part, word.prefix), ())
            kept = [each for page in read for each in beginning(page.body, word.prefix, word.has)]
            corpus.add_counts(head, word, kept)


def _alike(wanted: dict[WordClass, list[Head]]) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the index parts to read, each with the word prefixes to read in it."""
    prefixes: dict[tuple[int, ...], set[str]] = {}
    for word, heads in wanted.items():
        prefixes.setdefault(tuple([head.part for head in heads]), set()).add(word.prefix)
    for parts, asked in prefixes.items():
        yield list(parts), sorted(asked)


def add(corpus: Corpus, texts: Sequence[Found]) -> None:
    """Add the `texts` that are new and not excluded from recall."""
    for found in texts:
        if found.position > 0 and not corpus.has(found.position):
            corpus.add_text(text_of(found))


def _ranked(corpus: Corpus, heads: Sequence[Head], asked: Asked) -> Sequence[Ranked]:
    return asked.ranking(corpus, [corpus.counts(heads, word) for word in asked.words])
