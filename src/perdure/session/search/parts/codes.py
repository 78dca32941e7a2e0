"""Words as single characters: a text of a part is a short string, so phrases are counted in C.

The most frequent words of a part take one byte, the next two, the others three or four, as in
UTF-8; characters of equal length are in the order of their words. So words with a common prefix are
a few ranges of characters (`Range`), which one pattern finds. UTF-8 boundaries are unambiguous, so
the bytes can be searched directly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from perdure.session.search.query import Phrase

MOST_WORDS = 1_000_000
"""Maximum number of words in a part: there are fewer characters than integers."""

_FIRSTS = (0x01, 0x80, 0x800, 0x1_0000)
_NO_CODE = b"\0"
_SURROGATES, _SURROGATE_COUNT = 0xD800, 0x800


class Counter(msgspec.Struct, frozen=True):
    """Counts a phrase in a text given by its codes, which contain `stretch` if it is there."""

    stretch: bytes
    count_in: Callable[[bytes], int]


class Range(NamedTuple):
    """Words with a common prefix: the first and last character of one byte length."""

    first: str
    last: str


def codes_of(frequencies: Mapping[str, int]) -> dict[str, str]:
    """Return a character for each word of a part, given the frequency of each."""
    ordered = sorted(sorted(frequencies), key=frequencies.__getitem__, reverse=True)
    one, two = _FIRSTS[1] - _FIRSTS[0], _FIRSTS[2] - _FIRSTS[0]
    codes: dict[str, str] = {}
    for first, group in zip(
        _FIRSTS, (ordered[:one], ordered[one:two], ordered[two:]), strict=False
    ):
        codes.update(zip(sorted(group), map(character, count(first)), strict=False))
    return codes


def character(point: int) -> str:
    """Return the character for a number; the numbers leave no gap."""
    return chr(point if point < _SURROGATES else point + _SURROGATE_COUNT)


def point_of(character: str) -> int:
    """Return the number of a character."""
    point = ord(character)
    return point if point < _SURROGATES else point - _SURROGATE_COUNT


def ranges_of(codes: Sequence[str]) -> tuple[Range, ...]:
    """Return the ranges of `codes`, which belong to words with a common prefix."""
    groups: dict[int, list[str]] = {}
    for code in codes:
        groups.setdefault(min(len(code.encode()), 3), []).append(code)
    return tuple([Range(min(group), max(group)) for group in groups.values()])


def counter(
    phrase: Phrase, codes: Mapping[str, str], ranges: Mapping[str, Sequence[Range]]
) -> Counter:
    """Return a counter of `phrase` in texts of the part with these word `codes`.

    `ranges` are those of its last word if that is a prefix.
    """
    whole = phrase.terms[:-1] if phrase.is_prefix else phrase.terms
    ending = ranges.get(phrase.terms[-1], ()) if phrase.is_prefix else ()
    if not all(word in codes for word in whole) or (phrase.is_prefix and not ending):
        return Counter(_NO_CODE, _never)
    stretch = "".join([codes[word] for word in whole])
    if phrase.is_prefix:
        return Counter(stretch.encode(), _counter_of_ranges(stretch, ending))
    needle = stretch.encode()
    if phrase.terms[0] not in phrase.terms[1:]:
        return Counter(needle, lambda said: said.count(needle))
    overlapping = re.compile(
        b"(?=%s)" % re.escape(needle)
    )  # bytes.count would miss overlapping occurrences
    return Counter(needle, lambda said: len(overlapping.findall(said)))


def _counter_of_ranges(before: str, ending: Sequence[Range]) -> Callable[[bytes], int]:
    inside = "".join([f"{_escape(each.first)}-{_escape(each.last)}" for each in ending])
    pattern = f"(?={re.escape(before)}[{inside}])" if before else f"[{inside}]"
    found = re.compile(pattern).findall
    return lambda said: len(found(said.decode()))


def _escape(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _never(_said: bytes) -> int:
    return 0
