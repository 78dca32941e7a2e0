"""Similarity of texts with a question: with neighbours, without vectors, after changes."""

from __future__ import annotations

from array import array

import pytest

from perdure.memory.question import Meaning
from perdure.memory.similarity import similarity
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.pages import role_key
from perdure.stores.search.corpus import Corpus
from perdure.stores.search.index_keys import session_key
from perdure.stores.search.vectors import VectorModel, Vectors, stored

MODEL = VectorModel("m", 2)
ASKED = Meaning(MODEL, (2.0, 0.0))


def corpus_of(places: list[int]) -> Corpus:
    corpus = Corpus()
    for place in places:
        add(corpus, place)
    corpus.vectors[MODEL] = Vectors(1, MODEL.dimension)
    corpus.vectors[MODEL].resize(len(places))
    return corpus


def add(corpus: Corpus, place: int) -> None:
    filters = [session_key("s"), role_key("user")]
    corpus.add_text(Text(place, 0, ["word"], filters, place))


def test_window_similarity_includes_vectors_of_neighbouring_texts() -> None:
    corpus = corpus_of([1, 2, 3])
    rows = [(1, stored((1, 0))), (3, stored((0, 1)))]
    corpus.add_vectors(corpus.vectors[MODEL], rows)
    found = similarity(corpus, ASKED)
    assert found is not None
    assert found.own == pytest.approx([1, 0, 0])
    # text 1 has .25 of text 3 after it, text 2 has .7 of text 1 and .5 of text 3
    expected = [
        1 / (1 + 0.25**2) ** 0.5,
        0.7 / (0.7**2 + 0.5**2) ** 0.5,
        0.35 / (1 + 0.35**2) ** 0.5,
    ]
    assert found.window == pytest.approx(expected, abs=1e-5)


def test_text_inserted_between_other_texts_changes_their_neighbours() -> None:
    corpus = corpus_of([1, 3])
    corpus.add_vectors(corpus.vectors[MODEL], [(1, stored((1, 0))), (3, stored((0, 1)))])
    before = similarity(corpus, ASKED)
    add(corpus, 2)
    after = similarity(corpus, ASKED)
    assert before is not None
    assert after is not None
    assert before.window[0] == pytest.approx(1 / (1 + 0.5**2) ** 0.5)
    assert after.window[0] == pytest.approx(1 / (1 + 0.25**2) ** 0.5)


def test_corpus_without_vectors_has_no_similarity() -> None:
    assert similarity(Corpus(), ASKED) is None


def test_question_with_zero_vector_has_no_similarity() -> None:
    corpus = corpus_of([1])
    corpus.add_vectors(corpus.vectors[MODEL], [(1, stored((1, 0)))])
    assert similarity(corpus, Meaning(MODEL, (0.0, 0.0))) is None


def test_zero_vector_is_rejected() -> None:
    for wrong in ((0.0, 0.0), (), (float("inf"), 1.0), (float("nan"), float("nan"))):
        with pytest.raises(ValueError, match="no direction"):
            stored(wrong)
    assert array("b", stored((-2.0, 1.0))).tolist() == [-127, 64]
