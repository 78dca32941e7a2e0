"""The newest texts that fit, out of the parts of an index: what to look up and read next.

A store does what `PartLookup.step` says until it says nothing. It reads no more parts and texts
than are needed for the newest that fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.session.search.bm25 import Candidate
from perdure.session.search.parts.pages import Kept, beginning, kept_in
from perdure.session.search.parts.part_query import Asked, PartAnswer

LOOKED_AT_ONCE = (2, 8, 32, 128)
READ_AT_ONCE = 1_024


class Head(NamedTuple):
    """A part: its number, how many texts it has, the position of the last of them."""

    part: int
    size: int
    last: int


class Read(NamedTuple):
    """A text to read: its part and its number there."""

    part: int
    number: int


class Spoken(NamedTuple):
    """A text that was read."""

    part: int
    number: int
    position: int
    length: int
    codes: bytes


class Looked(NamedTuple):
    """The page of a part that keeps a key, or one that keeps keys that begin with it."""

    part: int
    key: str
    body: bytes


class _Open(NamedTuple):
    """Texts of a part that are not read yet, ascending; none is behind the position `last`."""

    head: Head
    last: int
    answer: PartAnswer
    texts: Sequence[int]


class PartLookup:
    """A search for the newest `most` texts that fit; `found` are those from outside the parts."""

    def __init__(
        self, asked: Asked, heads: Iterable[Head], found: Iterable[Candidate], most: int
    ) -> None:
        self.asked = asked
        self._found = list(found)
        self._most = most
        self._unseen = sorted(heads, key=lambda head: head.last)  # the newest is the last
        self._looks = 0
        self._seen: list[_Open] = []
        self._reading: dict[int, _Open] = {}

    def step(self) -> list[Head] | list[Read]:
        """The parts to look into next, or else the texts to read next; empty when it is over."""
        newest_seen = max((each.last for each in self._seen), default=None)
        newest_unseen = self._unseen[-1].last if self._unseen else None
        newest = max((n for n in (newest_seen, newest_unseen) if n is not None), default=None)
        if newest is None or self._is_enough(newest):
            return []
        return self._to_look() if newest == newest_unseen else self._to_read()

    def look_up(
        self, heads: Sequence[Head], exact: Iterable[Looked], begun: Iterable[Looked]
    ) -> None:
        """The pages of `heads` that may keep the keys, and those that may keep the prefixes."""
        kept: dict[int, dict[str, Kept]] = {head.part: {} for head in heads}
        more: dict[int, dict[str, list[Kept]]] = {head.part: {} for head in heads}
        for part, key, body in exact:
            found = kept_in(body, key)
            if found is not None:
                kept[part][key] = found
        for part, prefix, body in begun:
            more[part].setdefault(prefix, []).extend(beginning(body, prefix))
        for head in heads:
            self._page_keys(head, kept[head.part], more[head.part])

    def read(self, texts: Iterable[Spoken]) -> None:
        """The texts that were to be read, ascending in each part; some may be left out."""
        lowest: dict[int, int] = {}
        for part, _, position, length, codes in texts:
            lowest[part] = min(position, lowest.get(part, position))
            counts = self._reading[part].answer.counts(codes)
            if counts is not None:
                self._found.append(Candidate(position, counts, length))
        for part, each in self._reading.items():
            if each.texts:
                self._seen.append(each._replace(last=lowest.get(part, each.last)))
        self._reading = {}

    def candidates(self) -> list[Candidate]:
        """The newest that fit, the newest first."""
        return sorted(self._found, key=lambda each: -each.position)[: self._most]

    def _is_enough(self, newest_unread: int) -> bool:
        return sum(each.position > newest_unread for each in self._found) >= self._most

    def _page_keys(
        self, head: Head, kept: Mapping[str, Kept], begun: Mapping[str, Sequence[Kept]]
    ) -> None:
        answer = self.asked.answer(head.size, kept, begun)
        if answer.texts:
            self._seen.append(_Open(head, head.last, answer, answer.texts))

    def _to_look(self) -> list[Head]:
        most = LOOKED_AT_ONCE[min(self._looks, len(LOOKED_AT_ONCE) - 1)]
        self._looks += 1
        heads, self._unseen = self._unseen[-most:], self._unseen[:-most]
        return heads

    def _to_read(self) -> list[Read]:
        wanted: list[Read] = []
        self._seen.sort(key=lambda each: each.last)
        while self._seen and len(wanted) < READ_AT_ONCE:
            each = self._seen.pop()
            least = max(len(each.texts) - READ_AT_ONCE + len(wanted), 0)
            wanted += [Read(each.head.part, number) for number in each.texts[least:]]
            self._reading[each.head.part] = each._replace(texts=each.texts[:least])
        return wanted
