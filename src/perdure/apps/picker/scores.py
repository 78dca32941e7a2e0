"""Which sessions fit what was typed, and in which order. Pure.

A query is words and "quoted phrases", all of which must fit; letter case, accents and the width of
spaces do not count. A word fits a text that holds its letters in this order (fuzzy); the nearer
together they are, and the more of them begin a word, the better. A phrase fits only where it stands
letter for letter. A quote that is not closed is a phrase up to the end, so that a query narrows
while it is typed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence

import msgspec

_NEXT = 16
"""What a letter that follows the one before is worth."""

_BEGINS_WORD = 12
_BEGINS_TEXT = 4
_GAP = 3
_MOST_GAP = 30
_PHRASE = 40
_WHOLE_WORD = 20
_FIELD = 2
"""What a text costs for each text of the same thing that is more important."""

_BREAKS = frozenset(" \t/\\-_.,:;()[]{}'\"|")

_Score = Callable[[str, str], int | None]


class Wanted(msgspec.Struct, frozen=True):
    """A query: `words` fit fuzzily, `phrases` letter for letter. Both are folded."""

    words: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing is asked for, so everything fits."""
        return not self.words and not self.phrases


class Match(msgspec.Struct, frozen=True):
    """How well something fits. Shape: `index` is its place among what was ranked."""

    index: int
    score: int


def wanted_of(query: str) -> Wanted:
    """The words and phrases of `query`."""
    words: list[str] = []
    phrases: list[str] = []
    for number, part in enumerate(query.split('"')):
        if number % 2:
            phrases += [phrase] if (phrase := fold(part).strip()) else []
        else:
            words += fold(part).split()
    return Wanted(tuple(words), tuple(phrases))


def fold(text: str) -> str:
    """`text` without letter case and accents, runs of white space as one space."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(c for c in apart if not unicodedata.combining(c)).split())


def rank(texts: Iterable[Sequence[str]], wanted: Wanted) -> list[Match]:
    """Those of `texts` that fit, the best first; equally good ones in the order given.

    Shape: each item is the folded texts of one thing, the most important first; every word and
    phrase must fit one of them.
    """
    found: list[Match] = []
    for index, fields in enumerate(texts):
        score = score_of(fields, wanted)
        if score is not None:
            found.append(Match(index, score))
    found.sort(key=lambda match: -match.score)
    return found


def score_of(fields: Sequence[str], wanted: Wanted) -> int | None:
    """How well the folded `fields` fit; None when they do not."""
    total = 0
    for word in wanted.words:
        best = _best(fields, word, fuzzy_score)
        if best is None:
            return None
        total += best
    for phrase in wanted.phrases:
        best = _best(fields, phrase, phrase_score)
        if best is None:
            return None
        total += best
    return total


def _best(fields: Sequence[str], word: str, score: _Score) -> int | None:
    scores = [
        found - _FIELD * place
        for place, text in enumerate(fields)
        if (found := score(text, word)) is not None
    ]
    return max(scores, default=None)


def phrase_score(text: str, phrase: str) -> int | None:
    """How well `phrase` stands in `text`; None when it does not."""
    at = text.find(phrase)
    if at < 0:
        return None
    while at >= 0 and not _begins_word(text, at):  # a place that begins a word, if there is one
        at = text.find(phrase, at + 1)
    return _PHRASE + (_BEGINS_WORD if at >= 0 else 0) + (_BEGINS_TEXT if at == 0 else 0)


def fuzzy_score(text: str, word: str) -> int | None:
    """How well the letters of `word` stand in `text`, in their order; None when they do not.

    The best of the places where the whole word stands, else the nearest letters from the right end
    of the leftmost fit: linear in the text, and never a search of all ways.
    """
    whole = phrase_score(text, word)
    if whole is not None:
        return whole + _NEXT * (len(word) - 1) + (_WHOLE_WORD if _is_whole(text, word) else 0)
    places = _nearest(text, word)
    if places is None:
        return None
    score = 0
    for number, place in enumerate(places):
        if number and place == places[number - 1] + 1:
            score += _NEXT
        elif number:
            score -= min(_GAP * (place - places[number - 1] - 1), _MOST_GAP)
        if _begins_word(text, place):
            score += _BEGINS_WORD
    return score


def _nearest(text: str, word: str) -> list[int] | None:
    """Places of the letters of `word`: the leftmost end of a fit, and from there back the last."""
    end = -1
    for letter in word:
        end = text.find(letter, end + 1)
        if end < 0:
            return None
    places: list[int] = []
    at = end + 1
    for letter in reversed(word):
        at = text.rfind(letter, 0, at)
        places.append(at)
    return places[::-1]


def _begins_word(text: str, at: int) -> bool:
    return at == 0 or (text[at - 1] in _BREAKS and text[at] not in _BREAKS)


def _is_whole(text: str, word: str) -> bool:
    return f" {word} " in f" {text} "
