from __future__ import annotations

import random

import pytest

from perdure.session.search.parts.blocks import BLOCK_BYTES, Block, Said, block_rows
from perdure.session.search.parts.pages import DAMAGE

CHANCE = random.Random(4)
CODES = [b"a", b"b", b"b\xc0", b"\0\xff\xc1"]


def said_of(count: int, *, step: int = 3, span: int = 10**10, words: int = 60) -> list[Said]:
    """Return texts at increasing positions, some of them empty, with times within `span`."""
    found: list[Said] = []
    for number in range(count):
        codes = CHANCE.choices(CODES, k=CHANCE.randrange(words))
        at = CHANCE.randrange(-span, span)
        found.append(Said(number * step - 40, at, len(codes), b"".join(codes)))
    return found


def read(rows: list[tuple[int, bytes]]) -> list[Said]:
    return [said for first, body in rows for said in Block(7, first, body).said()]


@pytest.mark.parametrize("step", [1, 300, 70_000, 2**33])
@pytest.mark.parametrize("span", [1, 200, 10**5, 2**40])
def test_texts_are_restored_from_their_blocks(step: int, span: int) -> None:
    said = said_of(300, step=step, span=span)

    rows = list(block_rows(said))

    assert read([(row.first, row.body) for row in rows]) == said
    assert [row.first for row in rows] == [0, *(row.first + row.texts for row in rows)][:-1]
    assert [row.position for row in rows] == [said[row.first].position for row in rows]
    assert all(len(row.body) <= BLOCK_BYTES for row in rows)
    assert len(rows) > 1


def test_long_text_has_a_separate_block() -> None:
    long = Said(1, 5, 9_000, b"a" * 9_000)

    rows = list(block_rows([Said(0, 1, 1, b"a"), long, Said(2, 1, 1, b"b")]))

    assert [(row.first, row.texts) for row in rows] == [(0, 1), (1, 1), (2, 1)]
    assert list(Block(1, 1, rows[1].body).said()) == [long]
    assert list(block_rows([])) == []


def test_index_block_has_a_small_overhead_per_text() -> None:
    said = [Said(number, 10**12 + number, 9, b"a" * 50) for number in range(70)]

    (row,) = block_rows(said)

    assert len(row.body) == 70 * (50 + 3) + 21


def test_damaged_index_block_raises_damage() -> None:
    (row,) = block_rows(said_of(9))
    for body in (b"", b"\1", bytes(40), b"\2" + row.body[1:], row.body[:-1], row.body + b"a"):
        with pytest.raises(DAMAGE):
            list(Block(1, 0, body).said())
