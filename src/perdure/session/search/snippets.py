"""Choose the part of a text that best shows its matches, and mark the matches."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from perdure.session.search.matches import places
from perdure.session.search.query import Phrase
from perdure.session.search.words import Word, words

LENGTH = 160
"""Maximum number of characters of a snippet, without the truncation marks."""

_LEAD = 40
"""Maximum number of characters of a snippet before its first match."""

_MOST_PLACES = 1_000
"""Maximum number of matches of each phrase that are examined."""

_SLICE = 65_536
_REACH = 4_096
"""One search covers a slice of `_SLICE` characters, and `_REACH` characters after the slice.

`_SLICE` is also the number of words that are compared in one step.
"""

_SPACE = re.compile(r"\s+")

Span = tuple[int, int]


class Snippet(NamedTuple):
    """A part of a text, on one line; for `marks` see ``values.Hit``."""

    text: str
    marks: tuple[Span, ...]


def snippet_of(text: str, phrases: Sequence[Phrase]) -> Snippet:
    """Return the part of `text` that contains the most different phrases.

    Without a match, return the start of `text`.
    """
    spans = sorted(_spans(text, phrases))
    start = _best_start(spans)
    begin = _word_start(text, max(start - _LEAD, 0), start)
    end = min(begin + LENGTH, len(text))
    shown = _merge_spans(
        [(first, min(last, end)) for first, last, _ in spans if begin <= first < end]
    )
    return _on_one_line(text, begin, end, shown)


def _best_start(spans: Sequence[tuple[int, int, int]]) -> int:
    """Return the start of the match from which a snippet contains the most different phrases."""
    best, most = 0, 0
    starts = [span[0] for span in spans]
    for number, start in enumerate(starts):
        behind = spans[number : bisect_right(starts, start + LENGTH - 2 * _LEAD)]
        different = len({which for _, _, which in behind})
        if different > most:
            best, most = start, different
    return best


def _word_start(text: str, begin: int, start: int) -> int:
    """Return the first start of a word at or after `begin`, but at most `start`."""
    if begin == 0 or text[begin - 1].isspace():
        return begin
    space = _SPACE.search(text, begin, start)
    return begin if space is None else space.end()


def _merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Return sorted `spans` with overlapping ones merged."""
    merged: list[Span] = []
    for first, last in spans:
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _on_one_line(text: str, begin: int, end: int, shown: Sequence[Span]) -> Snippet:
    line = "…" if begin > 0 else ""
    marks: list[Span] = []
    at = begin
    for first, last in shown:
        line += _SPACE.sub(" ", text[at:first])
        marked = _SPACE.sub(" ", text[first:last])
        marks.append((len(line), len(line) + len(marked)))
        line += marked
        at = last
    line += _SPACE.sub(" ", text[at:end])
    is_cut = end < len(text) and not text[end:].isspace()
    return Snippet(line + ("…" if is_cut else ""), tuple(marks))


# ---------------------------------------------------------------- places of phrases


def _spans(text: str, phrases: Sequence[Phrase]) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and phrase number of each match in `text`."""
    left = list(enumerate(phrases))
    if text.isascii():
        for which, phrase in enumerate(phrases):
            found = list(islice(_matches(text, _pattern(phrase)), _MOST_PLACES))
            if found:
                left.remove((which, phrase))
            yield from ((match.start(), match.end(), which) for match in found)
        left = [pair for pair in left if _may_be_in(text, pair[1])]
    for which, phrase in left:
        yield from ((*span, which) for span in islice(_places(text, phrase), _MOST_PLACES))


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern`.

    Each call of `re` reads only a slice of `text`, so that other threads can run between the calls.
    """
    at = 0
    while at < len(text):
        stop = min(len(text), at + _SLICE)
        found = pattern.finditer(text, at, min(len(text), stop + _REACH))
        at = stop
        for match in found:
            if match.start() >= stop:
                break
            yield match
            at = max(stop, match.end())


def _places(text: str, phrase: Phrase) -> Iterator[Span]:
    """Yield start and end of each match of `phrase` in `text`, with only a few words in memory."""
    more, standing = words(text), list[Word]()
    while stretch := list(islice(more, _SLICE)):
        standing += stretch
        terms = [word.term for word in standing]
        for place in places(terms, phrase):
            yield standing[place].start, standing[place + len(phrase.terms) - 1].end
        standing = standing[max(0, len(standing) - len(phrase.terms) + 1) :]


def _may_be_in(text: str, phrase: Phrase) -> bool:
    """Return True if a word of `phrase` is so long that it can be a piece of a longer word.

    `_pattern` does not find a piece of a longer word in `text`.
    """
    return len(text) > 0 and any(len(term) >= 64 for term in phrase.terms)


@lru_cache(maxsize=256)
def _pattern(phrase: Phrase) -> re.Pattern[str]:
    """Return a pattern that finds `phrase` in ASCII text, faster than comparing words."""
    inside = "[^A-Za-z0-9]+".join(re.escape(term) for term in phrase.terms)
    end = "[A-Za-z0-9]*" if phrase.is_prefix else "(?![A-Za-z0-9])"
    return re.compile(f"(?<![A-Za-z0-9]){inside}{end}", re.IGNORECASE | re.ASCII)
