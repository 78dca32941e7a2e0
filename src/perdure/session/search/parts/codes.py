"""Encode the words of a text as a short byte string in which `re` can count phrases.

A code is one byte below 192, followed by as many bytes of 192 or more as needed. A code therefore
ends where the next byte below 192 begins, and needs no separator. A code that is followed by a byte
of 192 or more is only the beginning of another code. The 192 most frequent words of a part have
codes of one byte. The next 12,288 words have codes of two bytes. All other words have codes of
three or four bytes. Codes of equal length have the same order as their words. The codes of words
with a common prefix are therefore in a few ranges (`Range`), and one pattern can match all these
ranges.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

import msgspec

from perdure.session.search.query import Phrase

MOST_WORDS = 1_000_000
"""Maximum number of words in a part; there are more codes than this."""

_FIRST_BYTES = 192
"""How many byte values can be the first byte of a code.

With any value from 160 to 208, the codes of texts in several languages take 0.27 of the size of
these texts.

If the words were numbered, and the numbers were written as UTF-8, they would take 0.31 of this
size.
"""

_NEXT_BYTES = bytes(range(_FIRST_BYTES, 256))
_LAST_BYTE = 255

_SIZES = [_FIRST_BYTES * len(_NEXT_BYTES) ** more for more in range(4)]
_STARTS = (0, _SIZES[0], sum(_SIZES[:2]), sum(_SIZES[:3]))
"""The numbers of the first codes that have 1, 2, 3 and 4 bytes."""

_CODE = re.compile(rb"[\x00-\xbf][\xc0-\xff]*|[\xc0-\xff]+")
_END = rb"(?![\xc0-\xff])"

_NO_CODE = _NEXT_BYTES
"""A sequence of bytes that is longer than any code, so it occurs in no text."""


class Counter(msgspec.Struct, frozen=True):
    """Counts a phrase in the codes of a text.

    Every text with the phrase contains the bytes `stretch`.
    """

    stretch: bytes
    count_in: Callable[[bytes], int]


class Range(NamedTuple):
    """The codes of one length for words with a common prefix, from `first` to `last`."""

    first: bytes
    last: bytes


def codes_of(frequencies: Mapping[str, int]) -> dict[str, bytes]:
    """Return a code for each word of a part; `frequencies` maps each word to its frequency."""
    ordered = sorted(sorted(frequencies), key=frequencies.__getitem__, reverse=True)
    words = sorted(ordered[: _STARTS[1]])
    words += sorted(ordered[_STARTS[1] : _STARTS[2]])
    words += sorted(ordered[_STARTS[2] :])
    return dict(zip(words, chain.from_iterable(map(_codes_with, range(4))), strict=False))


def _codes_with(more: int) -> Iterator[bytes]:
    """Yield all codes that have one first byte and `more` further bytes, ascending."""
    return map(bytes, product(range(_FIRST_BYTES), *[_NEXT_BYTES] * more))


def code_of(number: int) -> bytes:
    """Return the code that has `number`; the numbers of all codes are consecutive.

    Raises: IndexError or ValueError if no code has the number.
    """
    more = bisect_right(_STARTS, number) - 1
    left, code = number - _STARTS[more], bytearray(more + 1)
    for place in range(more, 0, -1):
        left, digit = divmod(left, len(_NEXT_BYTES))
        code[place] = _FIRST_BYTES + digit
    code[0] = left
    return bytes(code)


def number_of(code: bytes) -> int:
    """Return the number of a code."""
    number = code[0]
    for byte in code[1:]:
        number = number * len(_NEXT_BYTES) + byte - _FIRST_BYTES
    return number + _STARTS[len(code) - 1]


def codes_in(text: bytes) -> list[bytes]:
    """Return the codes of a text, one for each word.

    For a damaged text, the result is arbitrary bytes.
    """
    return _CODE.findall(text)


def length_of(text: bytes) -> int:
    """Return the number of words of a text."""
    return len(text.translate(None, _NEXT_BYTES))


def ranges_of(codes: Sequence[bytes]) -> tuple[Range, ...]:
    """Return the ranges of `codes`, which belong to words with a common prefix."""
    groups: dict[int, list[bytes]] = {}
    for code in codes:
        groups.setdefault(len(code), []).append(code)
    return tuple([Range(min(group), max(group)) for group in groups.values()])


def counter(
    phrase: Phrase, codes: Mapping[str, bytes], ranges: Mapping[str, Sequence[Range]]
) -> Counter:
    """Return a counter of `phrase` in the texts of a part; `codes` maps the words to their codes.

    If the last word of the phrase is a prefix, `ranges` maps it to its ranges of codes.
    """
    whole = phrase.terms[:-1] if phrase.is_prefix else phrase.terms
    ending = ranges.get(phrase.terms[-1], ()) if phrase.is_prefix else ()
    if not all(word in codes for word in whole) or (phrase.is_prefix and not ending):
        return Counter(_NO_CODE, _never)
    stretch = b"".join([codes[word] for word in whole])
    words = [re.escape(codes[word]) for word in whole]
    if phrase.is_prefix:
        words.append(_any_of(ending))
    first, *more = words
    # Occurrences may overlap, so only the first word of one is consumed.
    found = re.compile(first + b"(?=%s%s)" % (b"".join(more), _END)).findall
    return Counter(stretch, lambda said: len(found(said)))


def _any_of(ranges: Sequence[Range]) -> bytes:
    """Return a pattern for the codes in `ranges`.

    The pattern begins with the set of all first bytes, so that `re` skips other bytes quickly.
    """
    spans = [each for first, last in ranges for each in _between(first, last)]
    firsts = b"".join([_span(*each[0]) for each in spans])
    rest = [
        b"(?<=[%s])" % _span(*first) + b"".join([b"[%s]" % _span(*each) for each in more])
        for first, *more in spans
    ]
    return b"[%s](?:%s)" % (firsts, b"|".join(rest))


def _between(first: bytes, last: bytes) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of byte spans, with one span for each byte of a code.

    Together, the lists match exactly the codes from `first` to `last`, which have equal length.
    """
    low, high, more = first[0], last[0], len(first) - 1
    if not more:
        yield [(low, high)]
        return
    lowest, highest = bytes([_FIRST_BYTES]) * more, bytes([_LAST_BYTE]) * more
    for each in _between(first[1:], last[1:] if low == high else highest):
        yield [(low, low), *each]
    if low + 1 < high:
        yield [(low + 1, high - 1), *[(_FIRST_BYTES, _LAST_BYTE)] * more]
    if low < high:
        for each in _between(lowest, last[1:]):
            yield [(high, high), *each]


def _span(first: int, last: int) -> bytes:
    return b"\\x%02x-\\x%02x" % (first, last)


def _never(_said: bytes) -> int:
    return 0
