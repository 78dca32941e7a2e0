"""A search for many values in one pass finds each occurrence of each value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.interop.redaction.known_values import KnownValues

_words = st.text("ab", min_size=2, max_size=5)


@given(st.lists(_words, max_size=6), st.text("ab", max_size=30))
def test_known_values_are_found_anywhere_in_a_text(values: list[str], text: str) -> None:
    expected = {
        (start, start + len(value))
        for value in values
        for start in range(len(text))
        if text.startswith(value, start)
    }
    assert set(KnownValues(values, 2).spans(text)) == expected


def test_known_values_below_the_minimum_length_are_ignored() -> None:
    assert list(KnownValues(["a"], 2).spans("a a")) == []
