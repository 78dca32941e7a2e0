"""Parsing of search queries."""

from __future__ import annotations

import pytest

from perdure.errors import InvalidQuery
from perdure.session.search.query import MOST_PHRASES, Phrase, Sought, sought_in
from tests.fakes.samples import case


def one(*terms: str, is_prefix: bool = False) -> tuple[Phrase, ...]:
    return (Phrase(terms, is_prefix),)


A, B, C = Phrase(("a",)), Phrase(("b",)), Phrase(("c",))


def test_query_is_parsed_into_the_expected_clauses() -> None:
    for text, clauses, unwanted in [
        ("a b", ((A,), (B,)), ()),
        ("a AND b", ((A,), (B,)), ()),
        ("a OR b c", ((A, B), (C,)), ()),
        ("c a OR b", ((C,), (A, B)), ()),
        ("a OR b OR c", ((A, B, C),), ()),
        ("a NOT b", ((A,),), (B,)),
        ("NOT b a", ((A,),), (B,)),
        ("a AND NOT b NOT c", ((A,),), (B, C)),
        ("a or b and c", ((A,), one("or"), (B,), one("and"), (C,)), ()),
        ("OR a", (one("or"), (A,)), ()),
        ("a OR", ((A,), one("or")), ()),
        ("a NOT", ((A,), one("not")), ()),
        ("NOT", (one("not"),), ()),
        ('"a b" c', (one("a", "b"), (C,)), ()),
        ('"a b"*', (one("a", "b", is_prefix=True),), ()),
        ('"NOT" b', (one("not"), (B,)), ()),
        ("a* foo_ba*", (one("a", is_prefix=True), one("foo", "ba", is_prefix=True)), ()),
        ("*", (), ()),
        ('"a b', ((A,), (B,)), ()),
        ('a"b c"', ((A,), one("b", "c")), ()),
        ("-a --b", ((A,), (B,)), ()),
        ("a - b", ((A,), (B,)), ()),
        ("Été 店舗", (one("ete"), one("店", "舗")), ()),
    ]:
        with case((text, clauses, unwanted)):
            if not clauses:
                with pytest.raises(InvalidQuery):
                    sought_in(text)
            else:
                assert sought_in(text) == Sought(clauses, unwanted)


def test_phrases_of_a_query_keep_their_order() -> None:
    assert sought_in("a OR b c NOT d").phrases == (A, B, C)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("?!", "no word"),
        ("NOT a", "only says"),
        ("a OR NOT b", "OR cannot be joined with NOT"),
        ("NOT a OR b", "OR cannot be joined with NOT"),
        ("a AND OR b", "AND OR needs a word on both sides"),
        ("a NOT NOT b", "NOT NOT needs a word on both sides"),
        ("w " * (MOST_PHRASES + 1), "too long"),
    ],
)
def test_error_for_an_invalid_query_describes_the_fault(text: str, reason: str) -> None:
    with pytest.raises(InvalidQuery, match=reason) as refused:
        sought_in(text)

    assert (refused.value.query, refused.value.code) == (text, "invalid_query")
    assert len(str(refused.value)) < 200
