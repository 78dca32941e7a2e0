"""Store vectors of texts and add them to a corpus, in the same way for every backend with an index.

Vectors are added in the order of the log, so one position per model records the progress. A step is
stored only if the model's stored position has not moved since the step began. Texts that were
erased during the step are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.session.search.words import VERSION
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.rows import NO_END, IndexedLog, Mark, SteppedLog
from perdure.stores.search.vectors import (
    Unembedded,
    VectorModel,
    VectorRows,
    Vectors,
    to_embed,
)

_SOME = 4_096


async def next_unembedded(rows: VectorRows, log: SteppedLog, model: VectorModel) -> Unembedded:
    """Return the next texts that need a vector of `model`."""
    before = (await rows.state(model)).upto
    read = await log.next_texts(Mark(VERSION, entry=before, stream=NO_END))
    texts = to_embed((found, mark.entry) for found, mark in read.found)
    return Unembedded(before, texts, read.end.entry)


async def put_in(
    rows: VectorRows,
    log: IndexedLog,
    model: VectorModel,
    span: tuple[int, int],
    vectors: Mapping[int, bytes],
) -> bool:
    """Store vectors for the texts after the position `span[0]`, up to the position `span[1]`.

    Return False, and store nothing, if the stored vectors of `model` do not end at `span[0]`,
    because another process has changed them.
    """
    before, after = span
    if (await rows.state(model)).upto != before:
        return False
    there = {each.position for each in await log.texts_at(list(vectors))}
    await rows.add(model, after, {at: body for at, body in vectors.items() if at in there})
    return True


async def follow(rows: VectorRows, corpus: Corpus, model: VectorModel) -> None:
    """Add the missing vectors of `model` to `corpus`."""
    number = (await rows.state(model)).number
    vectors = corpus.vectors.get(model)
    if vectors is None or vectors.number != number:
        vectors = corpus.vectors[model] = Vectors(number, model.dimension)
    vectors.resize(len(corpus.positions))
    while number:
        read = await rows.after(number, vectors.upto, _SOME)
        corpus.add_vectors(vectors, read)
        if len(read) < _SOME:
            return
