"""A question, as recall asks it: classes of words, names, a time, and what kind of answer it wants."""

from __future__ import annotations

from typing import NamedTuple

from perdure.memory.dates import Period, period_of
from perdure.memory.languages import Language, language_of
from perdure.session.search.words import terms
from perdure.stores.search.corpus import WordClass
from perdure.stores.search.index_keys import author_key

MOST_CLASSES = 48
"""Of a longer question the longest words are asked for: they are the rarest."""

_WHEN = frozenset("when wann quand cuando quando wanneer".split())
_SURE_OF_STEM = 3
"""A stem and its words have their first characters in common, except at most the last ones."""


class Question(NamedTuple):
    """A question. `names`: author key -> class keys, for words that may name a speaker."""

    text: str
    words: tuple[WordClass, ...]
    names: dict[str, str]
    period: Period | None
    asks_when: bool


def question_of(text: str, now: int) -> Question:
    """Return the question `text`, asked at `now`. Units: Unix milliseconds."""
    words = terms(text)
    language = language_of(words)
    classes: dict[str, WordClass] = {}
    names: dict[str, str] = {}
    for word in words:
        key = _key(language, word)
        names[author_key(word)] = key
        if word not in language.function_words and len(key) + word.isdigit() + (not word.isascii()) > 1:
            classes.setdefault(key, _class(language, word, key))
    if not classes:  # function words are all there is
        classes = {_key(language, word): _class(language, word, _key(language, word)) for word in words}
    asked = sorted(classes.values(), key=lambda each: -len(each.key))[:MOST_CLASSES]
    return Question(text, tuple(asked), names, period_of(text, now), not _WHEN.isdisjoint(words))


def _key(language: Language, word: str) -> str:
    return language.stem(word)


def _class(language: Language, word: str, key: str) -> WordClass:
    if len(word) < _SURE_OF_STEM:
        return WordClass(f"={word}", word, lambda said: said == word)
    alike = min(len(key), len(word))
    while alike and key[:alike] != word[:alike]:
        alike -= 1
    prefix = key[: max(min(alike, len(key) - 1), 2)] if len(key) > _SURE_OF_STEM else word[:2]
    stem = language.stem
    return WordClass(f"{language.name}:{key}", prefix, lambda said: stem(said) == key)
