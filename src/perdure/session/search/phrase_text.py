"""Join the words of a text into one string, in which counting phrases is faster than in a list.

An index that stores the words of each text as one string ranks its matches without reading or
decoding an entry. The phrase counts of this module always equal the phrase counts of the module
``matches``.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.session.search.matches import count, counts_by
from perdure.session.search.query import Phrase, Sought


def join_terms(terms: Sequence[str]) -> str:
    """Join `terms`, which contain no space, into a string with a space on both sides of each."""
    return f" {'  '.join(terms)} " if terms else ""


def counts_in_joined(text: str, sought: Sought) -> tuple[int, ...] | None:
    """Return the count of each of ``sought.phrases`` in `text`, which `join_terms` has made.

    The result is None if `text` does not match.
    """
    return counts_by(sought, lambda phrase: _count(text, phrase))


def stretch_of(phrase: Phrase) -> str:
    """Return the string that a joined text contains if, and only if, `phrase` occurs in it."""
    whole = join_terms(phrase.terms)
    return whole[:-1] if phrase.is_prefix else whole


def _count(text: str, phrase: Phrase) -> int:
    if _may_overlap(phrase):  # str.count would miss overlapping occurrences
        return count(text.split(), phrase)
    return text.count(stretch_of(phrase))


def _may_overlap(phrase: Phrase) -> bool:
    first, *others = phrase.terms
    return first in others or (phrase.is_prefix and bool(others) and first.startswith(others[-1]))
