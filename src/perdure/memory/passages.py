"""Find the passage of a long text that fits a question best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.session.search.words import words

PASSAGE_WORDS = 160
"""A text with more words is cut to a passage of this length."""

_STEP = 40


class Passage(NamedTuple):
    """A part of a text, and the character of the text at which it begins."""

    start: int
    text: str


def passage_of(text: str, weight: Callable[[str], float]) -> Passage:
    """Return the passage of `text` whose distinct words weigh most; return a short text whole.

    `weight` returns the weight of a folded word, 0.0 for a word that is not in the question.
    """
    found = list(words(text))
    if len(found) <= PASSAGE_WORDS:
        return Passage(0, text)
    weights = [weight(word.term) for word in found]
    first = max(
        range(0, len(found) - PASSAGE_WORDS + _STEP, _STEP),
        key=lambda start: (_weight(found, weights, start), -start),
    )
    last = min(first + PASSAGE_WORDS, len(found)) - 1
    start = _line_start(text, found[first].start)
    passage = text[start : _line_end(text, found[last].end)].rstrip()
    return Passage(start + len(passage) - len(passage.lstrip()), passage.lstrip())


def _weight(found: Sequence[tuple[str, int, int]], weights: Sequence[float], start: int) -> float:
    counts = Counter[str]()
    total = 0.0
    for (term, _, _), weight in zip(
        found[start : start + PASSAGE_WORDS], weights[start : start + PASSAGE_WORDS], strict=True
    ):
        if weight:
            counts[term] += 1
            total += weight / counts[term] ** 2
    return total


_NEAR = 80
"""If the start or end of a line is this near, a passage is extended to it. Units: characters."""


def _line_start(text: str, start: int) -> int:
    line = text.rfind("\n", max(start - _NEAR, 0), start)
    return line + 1 if line >= 0 else start


def _line_end(text: str, end: int) -> int:
    line = text.find("\n", end, end + _NEAR)
    return line if line >= 0 else end
