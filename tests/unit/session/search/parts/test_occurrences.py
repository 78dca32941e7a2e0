"""Frequencies of words and positions of texts, stored next to their postings."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.session.search.parts.builder import Text, make_part
from perdure.session.search.parts.occurrences import (
    frequencies,
    pack_frequencies,
    pack_places,
    places,
)
from perdure.session.search.parts.pages import SESSION, Kept, everything, is_word
from perdure.session.search.parts.postings import pack_numbers

WORDS = st.lists(st.sampled_from(("tide", "moon", "a", "店", "x1")), max_size=400)
TEXTS = st.lists(st.tuples(WORDS, st.integers(0, 2), st.integers(0, 2**40)), max_size=30)


@given(TEXTS)
def test_packed_frequencies_and_places_are_unpacked_unchanged(
    said: list[tuple[list[str], int, int]],
) -> None:
    texts = [
        Text(number, 1, words, (f"{SESSION}{session}",), place)
        for number, (words, session, place) in enumerate(said)
    ]
    counted, placed = dict[tuple[str, int], int](), dict[int, tuple[str, int]]()

    part = make_part(texts)
    for kept in (each for page in part.pages for each in everything(page.body)):
        if is_word(kept.key):
            found = frequencies(kept, len(texts))
            counted |= {(kept.key, number): count for number, count in zip(*found, strict=True)}
        elif kept.key.startswith(SESSION):
            found = places(kept, len(texts))
            placed |= {number: (kept.key, place) for number, place in found.items()}

    assert counted == {
        (word, number): count
        for number, text in enumerate(texts)
        for word, count in Counter(text.words).items()
    }
    assert placed == {number: (text.filters[0], text.place) for number, text in enumerate(texts)}


def test_words_that_occur_once_use_no_frequency_bytes() -> None:
    assert pack_frequencies([]) == b""
    assert len(pack_frequencies([(0, 2), (7, 3), (38, 4)])) == 3
    assert len(pack_places([5, 6, 9, 12])) == 4


def test_damaged_packed_values_are_rejected() -> None:
    kept = Kept("a", b"b", pack_numbers([1, 2], 3))
    for values in (b"\x80", b"\xff\x7f"):
        with pytest.raises((IndexError, ValueError)):
            frequencies(kept._replace(values=values), 3)
    for values in (b"\x80", b"", b"\x01", b"\x01\x01\x01"):
        with pytest.raises(ValueError, match=r"cut off|argument 2"):
            places(kept._replace(values=values), 3)
