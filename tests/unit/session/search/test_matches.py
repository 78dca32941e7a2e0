"""Words are matched against a query, and phrases are counted."""

from __future__ import annotations

import pytest

from perdure.session.search.matches import count, counts_in, places
from perdure.session.search.query import Phrase, sought_in


@pytest.mark.parametrize(
    ("query", "text", "counts"),
    [
        ("a", "b a c a", (2,)),
        ("a b", "b a", (1, 1)),
        ("a b", "a c", None),
        ("a OR b", "b b", (0, 2)),
        ("a OR b c", "a b", None),
        ("a NOT b", "a b", None),
        ("a NOT b", "a c", (1,)),
        ('"a a"', "a a a", (2,)),
        ('"a b"', "b a", None),
        ('"a b"', "a", None),
        ("ab*", "abc ab b", (2,)),
        ('"a b"*', "a bc a", (1,)),
    ],
)
def test_query_phrases_are_counted_in_a_text(
    query: str, text: str, counts: tuple[int, ...] | None
) -> None:
    assert counts_in(text.split(), sought_in(query)) == counts


def test_match_positions_point_to_the_first_word_of_each_match() -> None:
    phrase = Phrase(("a", "b"), is_prefix=True)
    terms = ["a", "b", "x", "a", "bc", "a"]

    assert list(places(terms, phrase)) == [0, 3]
    assert count(terms, phrase) == 2
