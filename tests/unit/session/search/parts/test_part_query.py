from __future__ import annotations

from perdure.session.search.parts.builder import make_part, pair_key
from perdure.session.search.parts.lookup import READ_AT_ONCE
from perdure.session.search.parts.part_query import MOST_PAIRS, Asked
from perdure.session.search.query import sought_in
from tests.fakes.parts import fitting, found_in, text


def test_query_looks_up_words_pairs_filters_and_prefixes() -> None:
    asked = Asked(sought_in('tide "old moon ri"* NOT "x y"'), [["#ruser", "#rtool"], []])

    assert asked.keys == sorted(
        ["tide", "old", "moon", "x", "y", pair_key("old", "moon"), "#ruser", "#rtool"]
    )
    assert asked.prefixes == ["ri"]


def test_long_phrase_looks_up_limited_pairs() -> None:
    words = [f"w{number}" for number in range(40)]

    assert len(Asked(sought_in(f'"{" ".join(words)}"'), []).keys) == 40 + MOST_PAIRS


def test_pairs_exclude_texts_without_the_phrase() -> None:
    texts = [text(number, "b x a x c x x x x b a c") for number in range(READ_AT_ONCE // 2)]
    texts[7] = text(7, "x x x a b c")
    texts[300] = text(300, "a b x b c")

    found, read = found_in([make_part(texts)], '"a b c"')

    assert found == fitting(texts, '"a b c"')
    assert [each.position for each in found] == [7]
    assert read <= 2
