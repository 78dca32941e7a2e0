"""Find the lines that may match a query by searching their bytes, without decoding JSON.

Most lines of a folder contain no word of a query, and a search in the bytes of a line proves this.
Invariant: if `PrefilterMatch.take` returns False, no entry in the bytes matches. A result True may
be wrong: the bytes of a word may be in a key, or in another word.

JSON escapes no letter and no digit, so a line contains most words unchanged. A line may lack a word
of its entry in these cases:

- The line has the word in another letter case, or with characters that are compared as other
  characters (``words``).
- The line has escaped code points, or a body in base64.
- The word is a number, which is found in Python's notation.
- perdure adds the word to the record.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from perdure.session.search import query
from perdure.session.search.words import folded_runs, stands_for_ascii

_ASCII = bytes(range(128))
_NUMBER = re.compile(r"[0-9]+e?")
"""The words into which a number is split: ``1.5e-07`` becomes 1, 5e and 07."""

_CALL = re.compile(rb'tool_?[cC]all\\*"')
"""The type of a tool call, whose arguments may contain numbers that a search must find."""

_ODD_NUMBER = re.compile(rb"[:\[,](?:\s|\\+[nrt])*-?(?:[0-9]+(?:\.[0-9]+)?[eE]|[0-9.]{17}|0\.0000)")
"""A number that Python may write with other digits; all other numbers keep their digits."""

_ESCAPE = re.compile(rb"\\u(?!00[01][0-9a-fA-F]|007[fF]|0085|2028|2029)")
"""An escaped character, except the escaped characters that separate words."""

_BASE64 = re.compile(rb'"(?:raw|base64)":"')
_OWN_WORDS = b"bashExecution"
"""A record type of pi: perdure turns its command into a text with additional words."""

_BETWEEN = rb'(?:true|false|null|\\u[0-9a-fA-F]{4}|\\[nrtbf]?|[^a-z0-9"\\])*'
"""Bytes that may be between two neighbouring words, except the end of a string."""

_WORDS_IN_A_ROW = 8
"""How many words of a phrase must be adjacent; the words after them may be anywhere."""


class PhrasePattern(NamedTuple):
    """The words of a phrase and, if there are two or more, the pattern of their sequence."""

    terms: frozenset[str]
    row: re.Pattern[bytes] | None


class Prefilter:
    """The words and patterns to search for in bytes, so that no match of `query` is missed."""

    def __init__(self, query: query.Sought) -> None:
        self.clauses = tuple(tuple(map(_phrase_pattern, clause)) for clause in query.clauses)
        self.rows = tuple({each.row for c in self.clauses for each in c if each.row is not None})
        terms = {term for phrase in query.phrases for term in phrase.terms}
        self.needles = {term: term.encode() for term in terms if term.isascii()}
        self.strange = frozenset(terms - self.needles.keys())
        self.numbers = frozenset(filter(_NUMBER.fullmatch, terms))
        self.has_letters = any(not term.isdigit() for term in self.needles)


def _phrase_pattern(phrase: query.Phrase) -> PhrasePattern:
    row = None
    if len(phrase.terms) > 1 and all(term.isascii() for term in phrase.terms):
        *before, last = (term.encode() for term in phrase.terms[:_WORDS_IN_A_ROW])
        # Where a string ends after a word, the next one may stand wherever another begins.
        for term in reversed(before):
            last = term + _BETWEEN + b'(?:"|' + last + b")"
        row = re.compile(last)
    return PhrasePattern(frozenset(phrase.terms), row)


class PrefilterMatch:
    """The words and patterns of the prefilter `sieve` that were found so far in the bytes."""

    def __init__(self, sieve: Prefilter) -> None:
        self._sieve = sieve
        self._seen: set[str] = set()
        self._rows: set[re.Pattern[bytes]] = set()

    def take(self, lines: bytes) -> bool:
        """Whether `lines`, together with the lines of earlier calls, may contain a match.

        Shape: `lines` are complete lines; an incomplete line is ignored and must be passed again as
        a whole.
        """
        sieve, seen = self._sieve, self._seen
        lowered = lines.lower() if sieve.has_letters else lines
        seen.update(term for term, needle in sieve.needles.items() if needle in lowered)
        self._rows.update(row for row in sieve.rows if row.search(lowered))
        return (
            self._has_all()
            or (self._has_others(lines) and self._has_all())
            or _ESCAPE.search(lines) is not None
            or _BASE64.search(lines) is not None
            or _OWN_WORDS in lines
        )

    def _has_all(self) -> bool:
        return all(any(map(self._has, clause)) for clause in self._sieve.clauses)

    def _has(self, sought: PhrasePattern) -> bool:
        return sought.terms <= self._seen and (sought.row is None or sought.row in self._rows)

    def _has_others(self, lines: bytes) -> bool:
        """Whether `lines` may contain words in non-ASCII characters; such words count as found."""
        sieve, seen = self._sieve, self._seen
        folded = "" if lines.isascii() else self._folded_words(lines)
        seen.update(term for term in (*sieve.needles, *sieve.strange) if term in folded)
        has_numbers = bool(sieve.numbers) and _has_odd_number(lines)
        if has_numbers:
            seen |= sieve.numbers
        if folded or has_numbers:
            self._rows.update(sieve.rows)
        return bool(folded) or has_numbers

    def _folded_words(self, lines: bytes) -> str:
        """Return words that may match the query and are not written in ASCII."""
        if not self._sieve.strange:
            others = lines.translate(None, _ASCII).decode(errors="replace")
            if not any(map(stands_for_ascii, set(others))):
                return ""
        concerned = [line for line in lines.split(b"\n") if not line.isascii()]
        return folded_runs(b"\n".join(concerned).decode(errors="replace"))


def _has_odd_number(lines: bytes) -> bool:
    at = 0
    while (found := _CALL.search(lines, at)) is not None:
        begin = lines.rfind(b"\n", at, found.start()) + 1 or at
        end = lines.find(b"\n", found.end())
        at = len(lines) if end < 0 else end
        if _ODD_NUMBER.search(lines, begin, at) is not None:
            return True
    return False
