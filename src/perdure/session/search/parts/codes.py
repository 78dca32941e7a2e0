"""Words as single characters: a text of a part is a short string, so phrases are counted in C.

The most frequent words of a part take one byte, the next two, the others three or four, as in
UTF-8; characters of equal length are in the order of their words. So words with a common prefix are
a few ranges of characters (`Range`), which one pattern finds. UTF-8 boundaries are unambiguous, so
the bytes can be searched directly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perdure.session.search.query import Phrase

MOST_WORDS = 1_000_000
"""Maximum number of words in a part: there are fewer characters than integers."""

_FIRSTS = (0x01, 0x80, 0x800, 0x1_0000)
_SURROGATES, _SURROGATE_COUNT = 0xD800, 0x800

Counted = Callable[[bytes], int]
"""Returns the count of a phrase in a text given by its codes."""


class Range(NamedTuple):
    """Words with a common prefix: the first and last character of one byte length."""

    first: str
    last: str


def codes_of(frequencies: Mapping[str, int]) -> dict[str, str]:
    """Return a character for each word of a part, given the frequency of each."""
    ordered = sorted(frequencies, key=lambda word: (-frequencies[word], word))
    one, two = _FIRSTS[1] - _FIRSTS[0], _FIRSTS[2] - _FIRSTS[0]
    codes: dict[str, str] = {}
    for first, group in zip(
        _FIRSTS, (ordered[:one], ordered[one:two], ordered[two:]), strict=False
    ):
        codes.update((word, _character(point)) for point, word in enumerate(sorted(group), first))
    return codes


def _character(point: int) -> str:
    return chr(point if point < _SURROGATES else point + _SURROGATE_COUNT)


def ranges_of(codes: Sequence[str]) -> tuple[Range, ...]:
    """Return the ranges of `codes`, which belong to words with a common prefix."""
    groups: dict[int, list[str]] = {}
    for code in codes:
        groups.setdefault(min(len(code.encode()), 3), []).append(code)
    return tuple([Range(min(group), max(group)) for group in groups.values()])


def counter(
    phrase: Phrase, codes: Mapping[str, str], ranges: Mapping[str, Sequence[Range]]
) -> Counted:
    """Return a function that counts `phrase` in texts of the part with these word `codes`.

    `ranges` are those of its last word if that is a prefix.
    """
    whole = phrase.terms[:-1] if phrase.is_prefix else phrase.terms
    ending = ranges.get(phrase.terms[-1], ()) if phrase.is_prefix else ()
    if not all(word in codes for word in whole) or (phrase.is_prefix and not ending):
        return _never
    stretch = "".join([codes[word] for word in whole])
    if phrase.is_prefix:
        return _counter_of_ranges(stretch, ending)
    needle = stretch.encode()
    if phrase.terms[0] not in phrase.terms[1:]:
        return lambda said: said.count(needle)
    overlapping = re.compile(
        b"(?=%s)" % re.escape(needle)
    )  # bytes.count would miss overlapping occurrences
    return lambda said: len(overlapping.findall(said))


def _counter_of_ranges(before: str, ending: Sequence[Range]) -> Counted:
    inside = "".join([f"{_escape(each.first)}-{_escape(each.last)}" for each in ending])
    pattern = f"(?={re.escape(before)}[{inside}])" if before else f"[{inside}]"
    found = re.compile(pattern).findall
    return lambda said: len(found(said.decode()))


def _escape(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _never(_said: bytes) -> int:
    return 0
