"""The texts that match a query, and their ranking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.apps.picker.selection import (
    Wanted,
    fold,
    fuzzy_score,
    phrase_score,
    rank,
    score_of,
    wanted_of,
)

TITLES = (
    "Fix the tide table",
    "The table of contents",
    "Tidy up the attic",
    "Größe der Straße",
    "a time indeed enormous",
    "release-checklist",
)


def order(query: str, titles: tuple[str, ...] = TITLES) -> list[str]:
    found = rank(((fold(title),) for title in titles), wanted_of(query))
    return [titles[match.index] for match in found]


@pytest.mark.parametrize(
    ("query", "words", "phrases"),
    [
        ("", (), ()),
        ("  Tide   TABLE ", ("tide", "table"), ()),
        ('"Tide  Table"', (), ("tide table",)),
        ('fix "tide table" now', ("fix", "now"), ("tide table",)),
        ('fix "tide ta', ("fix",), ("tide ta",)),
        ('""', (), ()),
        ('"', (), ()),
        ("größe", ("große",), ()),
    ],
)
def test_query_is_parsed_into_words_and_phrases(
    query: str, words: tuple[str, ...], phrases: tuple[str, ...]
) -> None:
    wanted = wanted_of(query)
    assert wanted.words == tuple(fold(word) for word in words)
    assert wanted.phrases == phrases


def test_empty_query_matches_everything_in_the_given_order() -> None:
    assert order("") == list(TITLES)


def test_letters_of_a_query_word_match_with_gaps_between_them() -> None:
    assert "Fix the tide table" in order("fxtbl")
    assert order("rlchk") == ["release-checklist"]


def test_every_word_must_match_in_any_order() -> None:
    assert order("table tide")[0] == "Fix the tide table"
    assert order("table zebra") == []


def test_quoted_phrase_matches_only_the_exact_letters() -> None:
    assert order('"tide table"') == ["Fix the tide table"]
    assert order('"table tide"') == []
    assert order('"tidetable"') == []


def test_exact_word_ranks_above_the_same_letters_with_gaps() -> None:
    assert order("tide")[0] == "Fix the tide table"
    assert set(order("tide")[1:]) == {"Tidy up the attic", "a time indeed enormous"}


def test_beginning_of_a_word_ranks_above_its_middle() -> None:
    assert order("cont", ("discontent", "table of contents")) == ["table of contents", "discontent"]


def test_letter_case_and_accents_are_ignored() -> None:
    assert order("GROSSE") == ["Größe der Straße"]
    assert order('"der strasse"') == ["Größe der Straße"]


def test_match_in_a_more_important_text_ranks_higher() -> None:
    texts = (("other", "tide"), ("tide", "other"))
    assert [match.index for match in rank(texts, wanted_of("tide"))] == [1, 0]


def test_words_can_match_different_texts_of_one_item() -> None:
    assert score_of(("fix the table", "0196f0c2", "/home/mira"), wanted_of("table 0196 mira"))


def test_items_with_equal_scores_keep_their_order() -> None:
    assert order("same", ("same", "same ", " same")) == ["same", "same ", " same"]


WORDS = st.text(alphabet="abcdé -", min_size=1, max_size=8)


@given(text=st.text(max_size=40), word=st.text(min_size=1, max_size=6))
def test_query_word_matches_text_that_has_its_letters_in_order(text: str, word: str) -> None:
    text, word = fold(text), fold(word)
    rest = iter(text)
    stands = all(letter in rest for letter in word)
    assert (fuzzy_score(text, word) is not None) == stands
    assert (phrase_score(text, word) is not None) == (word in text)


@given(texts=st.lists(WORDS, max_size=8), query=WORDS)
def test_rank_returns_matches_best_first(texts: list[str], query: str) -> None:
    wanted = wanted_of(query)
    fields = [(fold(text),) for text in texts]
    found = rank(fields, wanted)
    assert sorted(match.index for match in found) == [
        place for place, each in enumerate(fields) if score_of(each, wanted) is not None
    ]
    assert [match.score for match in found] == sorted((m.score for m in found), reverse=True)


@given(text=WORDS, query=WORDS, more=WORDS)
def test_query_with_more_words_returns_fewer_matches(text: str, query: str, more: str) -> None:
    fields = (fold(text),)
    wanted, longer = wanted_of(query), wanted_of(f"{query} {more}")
    both = Wanted(wanted.words + wanted_of(more).words)
    assert longer == both
    if score_of(fields, longer) is not None:
        assert score_of(fields, wanted) is not None
