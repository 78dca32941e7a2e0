"""Store the texts of an index part in blocks: one row contains several consecutive texts.

A text of a conversation has about 50 bytes of codes. With one row per text, the overhead would be
about as large as the codes. A block has three columns of numbers: the positions and the times, both
as offsets from the first text, and the byte lengths of the codes. Each column of numbers uses the
fewest bytes per number. The codes of all texts are stored without a gap, so one search for a phrase
covers the whole block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from perdure.session.search.parts.codes import length_of

BLOCK_BYTES = 3_960
"""Maximum size of a block: one fits into 4 kB, two into 8 kB. A longer text has its own block."""

_HEADER = Struct("<HqqBBB")
"""Format of a block's header.

The header contains the number of texts, the first position, the earliest time, and the bytes per
number of each column.
"""

_COUNT = Struct("<H")
_FORMS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Said(NamedTuple):
    """A text of an index part, with its words as codes."""

    position: int
    at: int
    length: int
    codes: bytes


class BlockRow(NamedTuple):
    """A block to store.

    `first` is the number of the block's first text in the index part. `position` is the position of
    the block's first text.
    """

    first: int
    position: int
    at: int
    texts: int
    body: bytes


def block_rows(said: Sequence[Said]) -> Iterator[BlockRow]:
    """Yield the blocks of all texts of a part."""
    first = size = 0
    earliest = latest = longest = 0
    for number, (position, at, _, codes) in enumerate(said):
        earliest, latest = min(earliest, at), max(latest, at)
        longest = max(longest, len(codes))
        size += len(codes)
        if number > first:
            reach = (position - said[first].position, latest - earliest, longest)
            columns = (number - first + 1) * sum(map(_width, reach))
            if _HEADER.size + columns + size > BLOCK_BYTES:
                yield _row(first, said[first:number])
                first = number
        if number == first:
            size = longest = len(codes)
            earliest = latest = at
    if said:
        yield _row(first, said[first:])


def _row(first: int, held: Sequence[Said]) -> BlockRow:
    positions, ats, _, codes = zip(*held, strict=True)
    position, at = positions[0], min(ats)
    columns = (
        [each - position for each in positions],
        [each - at for each in ats],
        list(map(len, codes)),
    )
    widths = [_width(max(numbers)) for numbers in columns]
    packed = [
        _column(width, len(held)).pack(*numbers)
        for width, numbers in zip(widths, columns, strict=True)
        if width
    ]
    header = _HEADER.pack(len(held), position, at, *widths)
    return BlockRow(first, position, at, len(held), b"".join((header, *packed, *codes)))


def _width(most: int) -> int:
    """Return how many bytes a number takes in a column whose numbers are at most `most`."""
    if most < 1 << 8:
        return 1 if most else 0
    return 2 if most < 1 << 16 else 4 if most < 1 << 32 else 8


@lru_cache(maxsize=256)  # most blocks have one of a few counts
def _column(width: int, count: int) -> Struct:
    return Struct(f"<{count}{_FORMS[width]}")


class Block:
    """A stored block: the texts of `part` with the numbers from `first` to `behind` - 1.

    Raises: ``pages.DAMAGE`` if the block is damaged.
    """

    def __init__(self, part: int, first: int, body: bytes) -> None:
        self.part = part
        self.first = first
        self.behind: int = first + _COUNT.unpack_from(body)[0]
        if self.behind == first:
            raise ValueError("a block has no text")
        self.body = body
        """Contains the codes of all texts, one after the other."""
        self._read: _Columns | None = None

    def text(self, number: int) -> tuple[int, int, bytes]:
        """Return the position, time and codes of the text with the number `number` in the part."""
        columns = self._read or self._columns()
        place = number - self.first
        begins = columns.begins
        return (
            columns.position + columns.positions[place],
            columns.at + columns.ats[place],
            self.body[begins[place] : begins[place + 1]],
        )

    def _columns(self) -> _Columns:
        count, position, at, *widths = _HEADER.unpack_from(self.body)
        offset = _HEADER.size
        read: list[Sequence[int]] = []
        for width in widths:
            if width:
                read.append(_column(width, count).unpack_from(self.body, offset))
                offset += width * count
            else:
                read.append((0,) * count)
        positions, ats, lengths = read
        begins = list(accumulate(lengths, initial=offset))
        if begins[-1] != len(self.body):
            raise ValueError("a block is cut off")
        self._read = _Columns(position, at, positions, ats, begins)
        return self._read

    def said(self) -> Iterator[Said]:
        """Yield all texts of the block."""
        for number in range(self.first, self.behind):
            position, at, codes = self.text(number)
            yield Said(position, at, length_of(codes), codes)


class _Columns(NamedTuple):
    """The decoded columns of a block.

    `positions` are offsets from `position`, and `ats` offsets from `at`. `begins` contains the
    start of each text's codes, and the end of the last text's codes.
    """

    position: int
    at: int
    positions: Sequence[int]
    ats: Sequence[int]
    begins: Sequence[int]
