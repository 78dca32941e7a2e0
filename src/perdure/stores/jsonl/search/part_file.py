"""A part of the index as a file: of it a search reads the few pages and texts that it asks for.

First comes what says where everything is, then the codes of the texts, where each text stands in
its session's file, and the pages. A file is written once, under a name that says its hash.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from struct import Struct, pack, unpack
from typing import NamedTuple

import msgspec

from perdure.session.search.parts.builder import Part, Said
from perdure.session.search.parts.pages import Page, after
from perdure.stores.jsonl.rows import Row
from perdure.stores.regular_files import open_regular

_MAGIC = b"perdure1"
_HEAD = Struct("<8sIIII")
"""How many texts there are; the bytes of the directory, of all codes, of all places."""

_TEXT = Struct("<qqIII")
"""Position, time, words; where its codes and its place end."""


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where a text stands: the number of its session, its seq, and its line as ``Row`` has it.

    `target` is the seq of what has to be on a branch for it to be there: `EVERYWHERE`, `NOWHERE`.
    """

    session: int
    seq: int
    target: int
    offset: int
    size: int
    kind: str
    v: int
    is_side: bool
    is_ours: bool
    part: int
    about: str | None

    def is_of(self, row: Row) -> bool:
        """It is `row` that it tells of."""
        return (
            (self.offset, self.size, self.kind, self.v) == (row.offset, row.size, row.kind, row.v)
            and (self.is_ours, self.part, self.about) == (row.is_ours, row.part, row.about)
            and self.is_side == (row.lane == "side")
        )


EVERYWHERE, NOWHERE = -1, -2

_places = msgspec.msgpack.Decoder(Place)
_firsts = msgspec.msgpack.Decoder(tuple[str, bytes])
_encode = msgspec.msgpack.Encoder().encode


class Whole(NamedTuple):
    """A part, and where each of its texts stands."""

    part: Part
    places: tuple[Place, ...]


def part_bytes(whole: Whole) -> bytes:
    """What the file of a part holds."""
    said, pages = whole.part.said, whole.part.pages
    places = [_encode(place) for place in whole.places]
    codes_end = accumulate(len(text.codes) for text in said)
    places_end = accumulate(map(len, places))
    table = [
        _TEXT.pack(text.position, text.at, text.length, code_end, place_end)
        for text, code_end, place_end in zip(said, codes_end, places_end, strict=True)
    ]
    ends = accumulate(len(page.body) for page in pages)
    directory = _encode(("\n".join([p.first for p in pages]), pack(f"<{len(pages)}I", *ends)))
    codes = b"".join([text.codes for text in said])
    where = b"".join(places)
    head = _HEAD.pack(_MAGIC, len(said), len(directory), len(codes), len(where))
    return b"".join([head, *table, directory, codes, where, *(page.body for page in pages)])


def name_of(content: bytes) -> str:
    """What the file of a part is called."""
    return f"part-{hashlib.blake2b(content, digest_size=16).hexdigest()}"


class PartGone(Exception):
    """The file of a part is not there, or is cut off: its index was replaced, or lost."""


class PartFile:
    """The file of a part, open: `close` it.

    Raises PartGone; else, where it is damaged, what ``pages.DAMAGE`` is, and OSError.
    """

    def __init__(self, path: Path, size: int) -> None:
        try:
            self._file = open_regular(path)
        except FileNotFoundError as error:
            raise PartGone(path.name) from error
        try:
            self._read_head(size)
        except BaseException:
            self.close()
            raise

    def _read_head(self, size: int) -> None:
        if os.fstat(self._file).st_size != size:
            raise PartGone("it is cut off")
        self._bytes = size
        magic, self.size, listed, codes, places = _HEAD.unpack(self._read(0, _HEAD.size))
        if magic != _MAGIC:
            raise ValueError("a part of the search index is none")
        table_end = _HEAD.size + self.size * _TEXT.size
        self._codes_at = table_end + listed
        self._places_at = self._codes_at + codes
        self._pages_at = self._places_at + places
        known = self._read(_HEAD.size, self._codes_at - _HEAD.size)
        self._table = known[: self.size * _TEXT.size]
        firsts, ends = _firsts.decode(known[len(self._table) :])
        self._firsts = firsts.split("\n") if firsts else []
        self._ends = unpack(f"<{len(self._firsts)}I", ends)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    # -- what a search asks for

    def page(self, key: str) -> bytes | None:
        """The page that keeps `key`, if any does."""
        place = bisect_right(self._firsts, key) - 1
        return None if place < 0 else self._page(place)

    def pages(self, prefix: str) -> Iterator[bytes]:
        """The pages that keep what begins with `prefix`."""
        first = max(bisect_right(self._firsts, prefix) - 1, 0)
        for place in range(first, bisect_left(self._firsts, after(prefix))):
            yield self._page(place)

    def texts_with_codes(self, numbers: Sequence[int]) -> Iterator[tuple[int, Said]]:
        """The texts of these numbers, ascending, with their codes."""
        if len(numbers) * 4 < self.size:
            for number in numbers:
                yield number, self._text_with_codes(number, None)
        else:  # they are nearly all: one read
            codes = self._read(self._codes_at, self._places_at - self._codes_at)
            for number in numbers:
                yield number, self._text_with_codes(number, codes)

    def place(self, number: int) -> Place:
        """Where the text of that number stands."""
        begin = 0 if number == 0 else self._text(number - 1)[4]
        content = self._read(self._places_at + begin, self._text(number)[4] - begin)
        return _places.decode(content)

    def whole(self) -> Whole:
        """All of it."""
        said = tuple([text for _, text in self.texts_with_codes(range(self.size))])
        pages = tuple([Page(first, self._page(n)) for n, first in enumerate(self._firsts)])
        return Whole(Part(said, pages), tuple(map(self.place, range(self.size))))

    # -- how it is read

    def _text(self, number: int) -> tuple[int, int, int, int, int]:
        return _TEXT.unpack_from(self._table, number * _TEXT.size)

    def _text_with_codes(self, number: int, codes: bytes | None) -> Said:
        position, at, length, end, _ = self._text(number)
        begin = 0 if number == 0 else self._text(number - 1)[3]
        if codes is None:
            return Said(position, at, length, self._read(self._codes_at + begin, end - begin))
        return Said(position, at, length, codes[begin:end])

    def _page(self, place: int) -> bytes:
        begin = self._ends[place - 1] if place else 0
        return self._read(self._pages_at + begin, self._ends[place] - begin)

    def _read(self, offset: int, size: int) -> bytes:
        if not 0 <= size <= self._bytes:  # what says so is damaged; it is no reason to take memory
            raise ValueError("a part of the search index is damaged")
        content = os.pread(self._file, size, offset)
        if len(content) != size:
            raise ValueError("a part of the search index is cut off")
        return content
