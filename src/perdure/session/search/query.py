"""Parse a search query.

In the query language, all words must occur in one entry, in any order. The words of a phrase in
quotes (``"some words"``) must occur in that order, next to each other. ``word*`` matches every word
with that prefix. ``a OR b`` matches either word. ``OR`` binds closer than the other operators, so
``x a OR b`` means x and (a or b). ``NOT a`` (or ``AND NOT a``) excludes entries that contain a.
Operators are written in capital letters. Punctuation without a meaning in the query language
separates words, so code and paths can be typed unchanged. An unpaired quote is ignored, and an
operator without operands is a word.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Literal

import msgspec

from perdure.errors import InvalidQuery
from perdure.session.search.words import terms

MOST_PHRASES = 64
MOST_TERMS = 512

Operator = Literal["AND", "OR", "NOT"]

_ITEM = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')
_OPERATORS: dict[str, Operator] = {"AND": "AND", "OR": "OR", "NOT": "NOT"}


class Phrase(msgspec.Struct, frozen=True):
    """One or more consecutive words. `is_prefix` means that the last word is a prefix."""

    terms: tuple[str, ...]
    is_prefix: bool = False


class Sought(msgspec.Struct, frozen=True):
    """A parsed query: a phrase of each clause must match, but no phrase of `unwanted`."""

    clauses: tuple[tuple[Phrase, ...], ...]
    unwanted: tuple[Phrase, ...] = ()

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """Return the wanted phrases, in order."""
        return tuple(chain.from_iterable(self.clauses))


def sought_in(text: str) -> Sought:
    """Parse the query `text`.

    Raises: InvalidQuery if the query is empty, has only excluded words, joins OR with NOT, or is
    too long.
    """
    reader = _Reader(text)
    for item in _items(text):
        reader.take(item)
    return reader.end()


def _items(text: str) -> list[Phrase | Operator]:
    """Return phrases and operators in alternation; an operator without an operand is a word."""
    found: list[Phrase | Operator] = []
    for quoted, star, word in _ITEM.findall(text):
        operator = _OPERATORS.get(word)
        if operator is not None:
            found.append(operator)
            continue
        is_prefix = star == "*" or (len(word) > 1 and word.endswith("*"))
        phrase = Phrase(tuple(terms(quoted or word)), is_prefix)
        if phrase.terms:
            found.append(phrase)
    while found and isinstance(found[-1], str):
        found[-1] = _word(found[-1])
    if found and isinstance(found[0], str) and found[0] != "NOT":
        found[0] = _word(found[0])
    return found


def _word(operator: str) -> Phrase:
    return Phrase((operator.lower(),))


class _Reader:
    """Combines the phrases and operators of a query, which are added one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._clauses: list[list[Phrase]] = []
        self._unwanted: list[Phrase] = []
        self._waiting: list[Operator] = []
        self._was_unwanted = False

    def take(self, item: Phrase | Operator) -> None:
        """Add the next phrase or operator."""
        if not isinstance(item, Phrase):
            self._waiting.append(item)
            return
        self._place(item)
        self._waiting = []

    def _place(self, phrase: Phrase) -> None:
        match self._waiting:
            case [] | ["AND"]:
                self._clauses.append([phrase])
                self._was_unwanted = False
            case ["NOT"] | ["AND", "NOT"]:
                self._unwanted.append(phrase)
                self._was_unwanted = True
            case ["OR"] if not self._was_unwanted:
                self._clauses[-1].append(phrase)
            case ["OR"] | ["OR", "NOT"]:
                raise self._refusal("OR cannot be joined with NOT; search twice instead")
            case _:
                raise self._refusal(f"{' '.join(self._waiting)} needs a word on both sides")

    def end(self) -> Sought:
        """Return the complete query."""
        sought = Sought(tuple(tuple(each) for each in self._clauses), tuple(self._unwanted))
        if not sought.clauses:
            nothing = "it only says what not to find; add what to find"
            raise self._refusal(nothing if sought.unwanted else "it holds no word to look for")
        everything = (*sought.phrases, *sought.unwanted)
        if len(everything) > MOST_PHRASES or sum(len(p.terms) for p in everything) > MOST_TERMS:
            raise self._refusal(
                f"it is too long: at most {MOST_PHRASES} words and phrases of {MOST_TERMS} words "
                "in all"
            )
        return sought

    def _refusal(self, reason: str) -> InvalidQuery:
        return InvalidQuery(self._text, reason)
