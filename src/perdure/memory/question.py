"""Parse a question for recall: classes of words, names, a time, the kind of answer wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.memory.dates import Period, period_of
from perdure.memory.languages import Language, language_of
from perdure.session.search.words import terms
from perdure.stores.search.corpus import WordClass
from perdure.stores.search.index_keys import author_key
from perdure.stores.search.vectors import VectorModel

MOST_CLASSES = 48
"""If a question has more classes of words, only the longest (the rarest) classes are used."""

_WHEN = frozenset(["when", "wann", "quand", "cuando", "quando", "wanneer"])
_ASKING = frozenset(
    terms("""
        how what where which who whom whose why warum was welche welchen welcher welches wer wie
        wieso wo woher wohin combien comment où pourquoi quel quelle quelles quels qui quoi como
        donde quien chi come dove perche quale onde quem hoe waar waarom wat welke wie""")
)
"""After one of these words, "when" does not ask for a time: "What did she do when he left?"."""
_SHORTEST = 3
"""A word with fewer letters is compared unchanged, because it has no endings."""


class Meaning(NamedTuple):
    """The vector of a question, and the model that made it."""

    model: VectorModel
    vector: Sequence[float]


class Question(NamedTuple):
    """A question that was parsed for a recall.

    `names` contains the words that may be the name of a speaker: it maps the index key of each word
    to the word's stem. `meaning` is None if no embedder was used.
    """

    text: str
    words: tuple[WordClass, ...]
    names: dict[str, str]
    period: Period | None
    asks_when: bool
    meaning: Meaning | None = None


def question_of(text: str, now: int) -> Question:
    """Parse the question `text`, which is asked at the time `now`. Units: Unix milliseconds."""
    words = terms(text)
    language = language_of(words)
    names = {author_key(word): language.stem(word) for word in words}
    classes: dict[str, WordClass] = {}
    for word in _content_of(words, language) or words:
        stem = language.stem(word)
        classes.setdefault(stem, _class(language, word, stem))
    asked = sorted(classes.values(), key=lambda each: -len(each.key))[:MOST_CLASSES]
    return Question(text, tuple(asked), names, period_of(text, now), _asks_when(words))


def has_content(text: str) -> bool:
    """Return whether `text` has a word with content; words like "the" and "of" have none."""
    words = terms(text)
    return bool(_content_of(words, language_of(words)))


def _content_of(words: Sequence[str], language: Language) -> list[str]:
    return [word for word in words if word not in language.function_words and _is_word(word)]


def _asks_when(words: Sequence[str]) -> bool:
    first = next((word for word in words if word in _WHEN or word in _ASKING), "")
    return first in _WHEN


def _is_word(word: str) -> bool:
    """Return False for single letters and digits: unlike a Chinese character, they lack meaning."""
    return len(word) > 1 or not word.isascii()


def _class(language: Language, word: str, stem: str) -> WordClass:
    if len(word) < _SHORTEST:
        return WordClass(stem, word, word.__eq__, word)
    alike = next((i for i, (a, b) in enumerate(zip(stem, word, strict=False)) if a != b), len(stem))
    prefix = word[: max(min(alike, len(stem) - 1), _SHORTEST - 1)]
    return WordClass(stem, prefix, language.same(word), word)
