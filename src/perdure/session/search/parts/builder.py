"""Build a part of an index from texts, and restore the texts' words from a part.

The same texts always give the same part, byte for byte, so that an index can be compared with the
log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle
from operator import add
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
_NO_PAIR = 2 * _PAIRS

_Places = dict[str, list[int]]


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
    codes = codes_of(Counter(chain.from_iterable(text.words for text in ordered)))
    postings: defaultdict[str, list[int]] = defaultdict(list)
    repeated: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, text in enumerate(ordered):
        for word, count in Counter(text.words).items():
            if count > 1:
                repeated[word].append((len(postings[word]), count))
            postings[word].append(number)
        for key in set(text.filters):
            postings[key].append(number)
    frequent = [word for word in codes if is_frequent(len(postings[word]), size)]
    values = {word: pack_frequencies(found) for word, found in repeated.items()}
    for key, found in postings.items():
        if key.startswith(SESSION):
            values[key] = pack_places(ordered[number].place for number in found)
    kept = {
        key: Kept(key, codes.get(key, ""), pack_numbers(found, size), values.get(key, b""))
        for key, found in postings.items()
    }
    for key, begun in _pairs(ordered, codes, frequent).items():
        kept[key] = Kept(key, "", pack_numbers(begun, size * PLACES))
    said = tuple([_word_places(text, codes) for text in ordered])
    return Part(said, tuple(pages_of(kept[key] for key in sorted(kept))))


def is_frequent(texts: int, size: int) -> bool:
    """Return True if pairs of a word in `texts` of the `size` texts of a part are indexed.

    Without pairs, a phrase of frequent words would have to be searched in all these texts.
    """
    return texts >= _FEW and texts * _RARE >= size


def pair_key(one: str, other: str) -> str:
    """Return the key of two adjacent words; different pairs may share a key."""
    return _key(_first_hash(one) + _second_hash(other))


def _word_places(text: Text, codes: Mapping[str, str]) -> Said:
    said = "".join([codes[word] for word in text.words])
    return Said(text.position, text.at, len(text.words), said.encode())


def _pairs(texts: Sequence[Text], words: Iterable[str], frequent: Iterable[str]) -> _Places:
    """Return pair key -> positions of the pairs of `frequent` words, by text."""
    first = dict.fromkeys(words, _NO_PAIR)
    second = first.copy()
    for word in frequent:
        first[word], second[word] = _first_hash(word), _second_hash(word)
    found: list[list[int]] = [[] for _ in range(_NO_PAIR)]
    for number, text in enumerate(texts):
        places = cycle(range(number * PLACES, (number + 1) * PLACES))
        ones, others = map(first.__getitem__, text.words), map(second.__getitem__, text.words[1:])
        for pair, place in zip(map(add, ones, others), places):  # noqa: B905 - places have no end
            if pair < _NO_PAIR:
                found[pair].append(place)
    merged = (set(found[pair]).union(found[pair + _PAIRS]) for pair in range(_PAIRS))
    return {_key(pair): sorted(held) for pair, held in enumerate(merged) if held}


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
