"""Build a part of an index from texts, and restore the texts' words from a part.

The same texts always give the same part, byte for byte, so that an index can be compared with the
log.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from perdure.session.search.parts.codes import codes_of
from perdure.session.search.parts.occurrences import pack_frequencies, pack_places, places
from perdure.session.search.parts.pages import (
    FILTER,
    PAIR,
    SESSION,
    Kept,
    Page,
    everything,
    is_word,
    pages_of,
)
from perdure.session.search.parts.postings import PLACES, bits, numbers, pack_numbers

_RARE, _FEW = 32, 16
"""A word is frequent in a part if at least one of `_RARE` texts, and at least `_FEW`, have it."""

_DIGITS = "".join(map(chr, range(0x21, 0x7F)))
_PAIRS = len(_DIGITS) ** 2


class Text(NamedTuple):
    """A text to index: its position in the log, its words, and its filter keys.

    `place` is its position in its session: the seq of its entry + 1; 0 for a title.
    """

    position: int
    at: int
    words: Sequence[str]
    filters: Sequence[str]
    place: int


class Said(NamedTuple):
    """A text of a part, with words as codes."""

    position: int
    at: int
    length: int
    codes: bytes


class Part(NamedTuple):
    """Texts, ascending by position, and the pages of their index."""

    said: tuple[Said, ...]
    pages: tuple[Page, ...]


def make_part(texts: Iterable[Text]) -> Part:
    """Return the part for `texts`: at most ``MOST_TEXTS``, with ``MOST_WORDS`` words in all."""
    ordered = sorted(texts, key=lambda text: text.position)
    size = len(ordered)
    occurrences = _numbers_by_key([text.words for text in ordered])
    codes = codes_of({word: len(found) for word, found in occurrences.items()})
    said = ["".join(map(codes.__getitem__, text.words)) for text in ordered]
    frequent: list[str] = []
    kept: list[Kept] = []
    for word, found in occurrences.items():
        held, repeated = _once(found)
        if is_frequent(len(held), size):
            frequent.append(word)
        kept.append(Kept(word, codes[word], pack_numbers(held, size), repeated))
    kept += _filters(ordered)
    kept += _pairs(said, codes, frequent)
    said_there = tuple(
        [
            Said(text.position, text.at, len(text.words), each.encode())
            for text, each in zip(ordered, said, strict=True)
        ]
    )
    return Part(said_there, tuple(pages_of(sorted(kept, key=itemgetter(0)))))


def is_frequent(texts: int, size: int) -> bool:
    """Return True if pairs of a word in `texts` of the `size` texts of a part are indexed.

    Without pairs, a phrase of frequent words would have to be searched in all these texts.
    """
    return texts >= _FEW and texts * _RARE >= size


def pair_key(one: str, other: str) -> str:
    """Return the key of two adjacent words; different pairs may share a key."""
    return _key(_first_hash(one) + _second_hash(other))


class _Lists(dict[str, Callable[[int], None]]):
    """Appends a number to the list of a key. `lists` are the lists by key."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[int]] = {}

    def __missing__(self, key: str) -> Callable[[int], None]:
        found = self.lists[key] = []
        self[key] = found.append
        return found.append


def _numbers_by_key(keys: Sequence[Iterable[str]]) -> dict[str, list[int]]:
    """Return the numbers of the texts of each key, as often as a text has it."""
    adding = _Lists()
    for number, own in enumerate(keys):
        for add in map(adding.__getitem__, own):
            add(number)
    return adding.lists


def _once(found: Sequence[int]) -> tuple[Sequence[int], bytes]:
    """Return each number once, and the frequencies of those that are there more often."""
    if len(set(found)) == len(found):
        return found, b""
    counts = Counter(found)
    repeated = [(place, count) for place, count in enumerate(counts.values()) if count > 1]
    return [*counts], pack_frequencies(repeated)


def _filters(texts: Sequence[Text]) -> Iterator[Kept]:
    for key, found in _numbers_by_key([set(text.filters) for text in texts]).items():
        is_session = key.startswith(SESSION)
        where = pack_places([texts[number].place for number in found]) if is_session else b""
        yield Kept(key, "", pack_numbers(found, len(texts)), where)


def _pairs(texts: Sequence[str], codes: Mapping[str, str], frequent: Iterable[str]) -> list[Kept]:
    """Return the positions of adjacent `frequent` words of `texts`, which are given as codes."""
    words = {codes[word]: word for word in frequent}
    if not words:
        return []
    any_of_them = "".join(map(re.escape, words))
    begun = re.compile(f"[{any_of_them}](?=[{any_of_them}])").finditer
    adding = _Lists()
    for number, text in enumerate(texts):
        first = number * PLACES
        for found in begun(text):
            begin = found.start()
            adding[text[begin : begin + 2]](first + begin % PLACES)
    merged: dict[str, set[int]] = {}
    for pair, places_of_pair in adding.lists.items():
        key = pair_key(words[pair[0]], words[pair[1]])
        merged.setdefault(key, set()).update(places_of_pair)
    size = len(texts) * PLACES
    return [Kept(key, "", pack_numbers(sorted(held), size)) for key, held in merged.items()]


def _first_hash(word: str) -> int:
    return crc32(word.encode()) * 40_503 % _PAIRS


def _second_hash(word: str) -> int:
    return crc32(word.encode()) * 30_011 % _PAIRS


def _key(pair: int) -> str:
    high, low = divmod(pair % _PAIRS, len(_DIGITS))
    return PAIR + _DIGITS[high] + _DIGITS[low]


# ---------------------------------------------------------------- and back


def texts_in(part: Part) -> Iterator[Text]:
    """Yield the texts that `part` was built from.

    Raises: KeyError, UnicodeDecodeError, msgspec.DecodeError if it is damaged.
    """
    words: dict[str, str] = {}
    filters: defaultdict[int, list[str]] = defaultdict(list)
    where: dict[int, int] = {}
    for kept in chain.from_iterable(everything(page.body) for page in part.pages):
        if is_word(kept.key):
            words[kept.code] = kept.key
        elif kept.key.startswith(FILTER):
            for number in numbers(bits(kept.posting, len(part.said))):
                filters[number].append(kept.key)
            if kept.key.startswith(SESSION):
                where.update(places(kept, len(part.said)))
    for number, said in enumerate(part.said):
        spoken = [words[code] for code in said.codes.decode()]
        yield Text(said.position, said.at, spoken, filters[number], where[number])
