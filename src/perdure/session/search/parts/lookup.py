"""Find the newest matching texts in the parts of an index, and tell the store what to read next.

A store executes `PartLookup.step` until it returns nothing. A search reads only the parts and texts
needed for the newest matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.session.search.bm25 import Candidate
from perdure.session.search.parts.blocks import Block
from perdure.session.search.parts.codes import length_of
from perdure.session.search.parts.pages import Kept, beginning, kept_in
from perdure.session.search.parts.part_query import Asked, PartAnswer

LOOKED_AT_ONCE = (2, 8, 32, 128)
READ_AT_ONCE = 1_024


class Head(NamedTuple):
    """The head of an index part: its number, its number of texts, and its last text's position."""

    part: int
    size: int
    last: int


class Read(NamedTuple):
    """Texts to read: their part, and their numbers in the part, ascending.

    A store can skip each block that does not contain the bytes `stretch`, except the block of the
    first text.
    """

    part: int
    numbers: Sequence[int]
    stretch: bytes = b""


class Looked(NamedTuple):
    """A page of a part that was looked up for a key, or for a prefix of keys."""

    part: int
    key: str
    body: bytes


class _Open(NamedTuple):
    """Unread texts of an index part, ascending.

    No unread text comes after the position `last`. `reading` are the texts to read next.
    """

    head: Head
    last: int
    answer: PartAnswer
    texts: Sequence[int]
    reading: Sequence[int] = ()


class PartLookup:
    """A search in the parts of an index for the newest `most` matches.

    `found` are the matches outside of all parts.
    """

    def __init__(
        self, asked: Asked, heads: Iterable[Head], found: Iterable[Candidate], most: int
    ) -> None:
        self.asked = asked
        self._found = list(found)
        self._most = most
        self._unseen = sorted(heads, key=lambda head: head.last)  # the newest is last
        self._looks = 0
        self._seen: list[_Open] = []
        self._reading: dict[int, _Open] = {}

    def step(self) -> list[Head] | list[Read]:
        """Return the parts to look up next, or else the texts to read next; empty at the end."""
        newest_seen = max((each.last for each in self._seen), default=None)
        newest_unseen = self._unseen[-1].last if self._unseen else None
        newest = max((n for n in (newest_seen, newest_unseen) if n is not None), default=None)
        if newest is None or self._is_enough(newest):
            return []
        return self._to_look() if newest == newest_unseen else self._to_read()

    def look_up(
        self, heads: Sequence[Head], exact: Iterable[Looked], begun: Iterable[Looked]
    ) -> None:
        """Process the index pages of `heads`.

        `exact` are the pages for exact keys. `begun` are the pages for prefixes.
        """
        kept: dict[int, dict[str, Kept]] = {head.part: {} for head in heads}
        more: dict[int, dict[str, list[Kept]]] = {head.part: {} for head in heads}
        for part, key, body in exact:
            found = kept_in(body, key)
            if found is not None:
                kept[part][key] = found
        for part, prefix, body in begun:
            more[part].setdefault(prefix, []).extend(beginning(body, prefix))
        for head in heads:
            answer = PartAnswer(self.asked, head.size, kept[head.part], more[head.part])
            if answer.texts:
                self._seen.append(_Open(head, head.last, answer, answer.texts))

    def read(self, blocks: Iterable[Block], first_at: int, behind_at: int) -> None:
        """Add the matches among the requested texts to the candidates.

        `blocks` can lack some of the requested texts. A text is skipped if its time is before
        `first_at`, or at or after `behind_at`.
        """
        lowest: dict[int, Block] = {}
        for block in blocks:
            reading = self._reading[block.part]
            if block.part not in lowest or block.first < lowest[block.part].first:
                lowest[block.part] = block
            if reading.answer.may_be_in(block.body):
                self._read(block, reading, first_at, behind_at)
        for part, each in self._reading.items():
            if each.texts:
                last = lowest[part].text(each.reading[0])[0] if part in lowest else each.last
                self._seen.append(each._replace(last=last, reading=()))
        self._reading = {}

    def _read(self, block: Block, part: _Open, first_at: int, behind_at: int) -> None:
        reading, counts_of = part.reading, part.answer.counts
        first = bisect_left(reading, block.first)
        for number in reading[first : bisect_left(reading, block.behind, first)]:
            position, at, codes = block.text(number)
            counts = counts_of(codes)
            if counts is not None and first_at <= at < behind_at:
                self._found.append(Candidate(position, counts, length_of(codes)))

    def candidates(self) -> list[Candidate]:
        """Return the newest matches, newest first."""
        return sorted(self._found, key=lambda each: -each.position)[: self._most]

    def _is_enough(self, newest_unread: int) -> bool:
        return sum(each.position > newest_unread for each in self._found) >= self._most

    def _to_look(self) -> list[Head]:
        most = LOOKED_AT_ONCE[min(self._looks, len(LOOKED_AT_ONCE) - 1)]
        self._looks += 1
        heads, self._unseen = self._unseen[-most:], self._unseen[:-most]
        return heads

    def _to_read(self) -> list[Read]:
        wanted: list[Read] = []
        left = READ_AT_ONCE
        self._seen.sort(key=lambda each: each.last)
        while self._seen and left > 0:
            each = self._seen.pop()
            least = max(len(each.texts) - left, 0)
            reading = each.texts[least:]
            left -= len(reading)
            wanted.append(Read(each.head.part, reading, each.answer.stretch))
            self._reading[each.head.part] = each._replace(texts=each.texts[:least], reading=reading)
        return wanted
