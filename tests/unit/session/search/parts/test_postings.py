from __future__ import annotations

import random

import pytest

from perdure.session.search.parts.postings import (
    MOST_TEXTS,
    bits,
    numbers,
    pack_numbers,
)

CHANCE = random.Random(5)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 300])
def test_packed_posting_numbers_are_unpacked_unchanged(size: int) -> None:
    for count in range(0, size + 1, max(size // 9, 1)):
        expected = sorted(CHANCE.sample(range(size), count))

        assert numbers(bits(pack_numbers(expected, size), size)) == expected


def test_dense_sets_contain_same_numbers_as_sparse_sets() -> None:
    for of in (1, 2, 4, 5, 6, 50):
        expected = [number for number in range(MOST_TEXTS) if CHANCE.randrange(of) == 0]
        assert numbers(sum(1 << number for number in expected)) == expected
    assert numbers(0) == []


def test_few_numbers_are_stored_as_list_and_many_as_bits() -> None:
    size = MOST_TEXTS

    assert len(pack_numbers([0, size - 1], size)) == 4
    assert numbers(bits(pack_numbers([0, size - 1], size), size)) == [0, size - 1]
    assert len(pack_numbers(range(size), size)) == size // 8
