"""Compute the similarity in meaning between a question and the texts of a corpus, with numpy.

A text is compared by its own vector, and also by its vector together with the vectors of its
neighbours. The vectors of neighbours have the same weights as the words of neighbours. Vectors are
stored in memory as signed bytes and converted to floats one block at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.memory.question import Meaning
from perdure.stores.search.corpus import AFTER, BEFORE, Corpus
from perdure.stores.search.vectors import Vectors

Floats = NDArray[np.floating]
Numbers = NDArray[np.int_]

_BLOCK = 1_024
"""Number of vectors that are converted at a time: they fit into the cache of a processor."""


class Similarity(NamedTuple):
    """The cosine between a question and each text, both with and without the text's neighbours."""

    window: Floats
    own: Floats


def similarity(corpus: Corpus, meaning: Meaning) -> Similarity | None:
    """Return the similarity of every text; 0 for a text whose vectors are missing.

    Return None if all vectors are missing, or if the question's vector is 0. The question's vector
    is 0 if a static embedder knows no word of the question.
    """
    vectors = corpus.vectors.get(meaning.model)
    if vectors is None or not vectors.number:
        return None
    asked = np.array(meaning.vector, np.float32)
    length = np.linalg.norm(asked)
    if not length:
        return None
    asked /= length
    vectors.resize(len(corpus.positions))
    _measure(corpus, vectors)
    rows = np.frombuffer(vectors.rows, np.int8).reshape(-1, vectors.dimension)
    own = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _BLOCK):
        own[start : start + _BLOCK] = rows[start : start + _BLOCK].astype(np.float32) @ asked
    own *= np.frombuffer(vectors.scales, np.float32)
    window = np.zeros(len(own) + 1, np.float32)  # the last is for the neighbour -1
    window[:-1] = own
    for columns, weights in ((corpus.after, BEFORE), (corpus.before, AFTER)):
        for column, weight in zip(columns, weights, strict=True):
            window[view(column)] += np.float32(weight) * own
    lengths = np.frombuffer(vectors.windows, np.float32)
    return Similarity(np.divide(window[:-1], lengths, out=window[:-1], where=lengths > 0), own)


def cosines(meaning: Meaning, vectors: Sequence[array[float] | None]) -> list[float | None]:
    """Return the cosine of a question with each vector; None if it cannot be computed."""
    asked = np.array(meaning.vector, np.float32)
    found: list[float | None] = []
    for vector in vectors:
        if vector is None or len(vector) != len(asked):
            found.append(None)
            continue
        other = np.frombuffer(vector, np.float32)
        length = float(np.linalg.norm(asked)) * float(np.linalg.norm(other))
        found.append(float(asked @ other) / length if length > 0 else None)
    return found


def _measure(corpus: Corpus, vectors: Vectors) -> None:
    """Compute the lengths of new vectors, and of vectors whose neighbours have changed."""
    if not (vectors.new or vectors.moved):
        return
    rows = np.frombuffer(vectors.rows, np.int8).reshape(-1, vectors.dimension)
    scales = np.frombuffer(vectors.scales, np.float32)
    new = np.array(sorted(vectors.new), np.int_)
    for start in range(0, len(new), _BLOCK):
        texts = new[start : start + _BLOCK]
        scales[texts] = 1 / np.maximum(np.linalg.norm(rows[texts].astype(np.float32), axis=1), 1e-9)
    moved = vectors.moved.union(*map(corpus.around, vectors.new))
    windows = np.frombuffer(vectors.windows, np.float32)
    changed = np.array(sorted(moved), np.int_)
    for start in range(0, len(changed), _BLOCK):
        texts = changed[start : start + _BLOCK]
        windows[texts] = _window_lengths(corpus, rows, scales, texts)
    vectors.new.clear()
    vectors.moved.clear()


def _window_lengths(
    corpus: Corpus, rows: NDArray[np.int8], scales: Floats, texts: Numbers
) -> Floats:
    """Return the lengths of the vectors of `texts`, each combined with its weighed neighbours."""
    before, after = list(map(view, corpus.before)), list(map(view, corpus.after))
    near = [column[texts] for column in before]
    near.append(np.where(near[-1] >= 0, before[0][near[-1]], -1))  # the fourth text before
    total = rows[texts].astype(np.float32) * scales[texts, None]
    others = [*zip(near, BEFORE, strict=True), *zip((a[texts] for a in after), AFTER, strict=False)]
    for numbers, weight in others:
        scale = np.where(numbers >= 0, scales[numbers], 0) * np.float32(weight)
        total += rows[numbers].astype(np.float32) * scale[:, None]
    return np.linalg.norm(total, axis=1)


def view(column: array[Any], kind: type[np.number[Any]] = np.int_) -> NDArray[Any]:
    """Return `column` as an array that shares its memory."""
    return np.frombuffer(column, kind)
