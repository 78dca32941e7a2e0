"""Phrase counts in joined words equal the counts in a list of words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.session.search.matches import count, counts_in
from perdure.session.search.phrase_text import counts_in_joined, join_terms, stretch_of
from perdure.session.search.query import Phrase, Sought, sought_in

_WORDS = st.sampled_from(("a", "b", "ab", "aba", "ba"))
_PHRASES = st.builds(
    Phrase, st.lists(_WORDS, min_size=1, max_size=3).map(tuple), is_prefix=st.booleans()
)


@pytest.mark.parametrize("query", ['"a a"', "a*", '"ab a"*', "a b NOT ab", "x OR ba"])
def test_query_phrase_is_counted_equally_in_text_and_word_list(query: str) -> None:
    sought, terms = sought_in(query), ["a", "a", "a", "ab", "a", "b", "aba", "ba"]

    assert counts_in_joined(join_terms(terms), sought) == counts_in(terms, sought)


@given(terms=st.lists(_WORDS, max_size=12), phrase=_PHRASES)
@settings(max_examples=50)
def test_random_phrase_count_is_equal_in_text_and_word_list(
    terms: list[str], phrase: Phrase
) -> None:
    text, sought = join_terms(terms), Sought(((phrase,),))

    assert counts_in_joined(text, sought) == counts_in(terms, sought)
    assert (stretch_of(phrase) in text) == (count(terms, phrase) > 0)
