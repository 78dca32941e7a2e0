from __future__ import annotations

import random

import pytest

from perdure.session.search.parts.postings import (
    MOST_TEXTS,
    PLACES,
    bits,
    numbers,
    pack_numbers,
    rotate,
    texts_at,
)

CHANCE = random.Random(5)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 300])
def test_numbers_round_trip(size: int) -> None:
    for count in range(0, size + 1, max(size // 9, 1)):
        expected = sorted(CHANCE.sample(range(size), count))

        assert numbers(bits(pack_numbers(expected, size), size)) == expected


def test_few_numbers_are_a_list_and_many_are_bits() -> None:
    size = MOST_TEXTS * PLACES

    assert len(pack_numbers([0, size - 1], size)) == 4
    assert numbers(bits(pack_numbers([0, size - 1], size), size)) == [0, size - 1]
    assert len(pack_numbers(range(size), size)) == size // 8


@pytest.mark.parametrize("by", [0, 1, 5, 7, 8, 19])
def test_places_rotate_within_their_text(by: int) -> None:
    texts = 20
    places = set(CHANCE.sample([(text, place) for text in range(texts) for place in range(8)], 30))
    given = sum(1 << text * PLACES + place for text, place in places)

    found = rotate(given, by, texts)

    assert found == sum(1 << text * PLACES + (place - by) % PLACES for text, place in places)
    assert numbers(texts_at(found, texts)) == sorted({text for text, _ in places})
    assert texts_at(0, texts) == 0
