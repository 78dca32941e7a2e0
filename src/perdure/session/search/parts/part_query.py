"""Query an index part: compute the keys to look up, and the texts that might match.

The query misses no match, but a phrase of several words can select texts that do not match. The
search therefore checks the codes of each selected text: it skips the blocks without the codes of a
phrase, and tests each text in the remaining blocks (`PartAnswer.counts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain

from perdure.session.search.matches import counts_by
from perdure.session.search.parts.codes import Counter, Range, counter, ranges_of
from perdure.session.search.parts.pages import Kept, is_word
from perdure.session.search.parts.postings import bits, either, numbers
from perdure.session.search.query import Phrase, Sought


class Asked:
    """A search query with its filters, and the keys to look up in an index part.

    Each filter is a group of keys, and a text must have one key of every group.
    """

    def __init__(self, sought: Sought, filters: Iterable[Sequence[str]]) -> None:
        self.sought = sought
        self.filters = [group for group in filters if group]
        phrases = (*sought.phrases, *sought.unwanted)
        words = chain.from_iterable(map(_whole, phrases))
        self.keys = sorted({*words, *chain.from_iterable(self.filters)})
        """Keys to look up exactly."""
        self.has_phrase = any(len(each.terms) > 1 for each in sought.phrases)
        self.prefixes = sorted({each.terms[-1] for each in phrases if each.is_prefix})
        """Prefixes to look up."""


class PartAnswer:
    """Finds the texts of an index part that might match a query.

    `size` is the number of texts in the part. `kept` and `begun` are the part's data for the keys
    and for the prefixes of the query.

    `texts` are the numbers of possible matches, ascending.
    """

    def __init__(
        self,
        asked: Asked,
        size: int,
        kept: Mapping[str, Kept],
        begun: Mapping[str, Sequence[Kept]],
    ) -> None:
        self._asked = asked
        self._size = size
        self._kept = kept
        self._texts = {key: bits(each.posting, size) for key, each in kept.items()}
        self._begun = {
            prefix: either((each.posting for each in found), size)
            for prefix, found in begun.items()
        }
        self.texts = numbers(self._fitting())
        self._counters = self._made_counters(begun) if self.texts else {}

    def counts(self, codes: bytes) -> tuple[int, ...] | None:
        """Return the count of each phrase in a text; None if the text does not match the query."""
        return counts_by(self._asked.sought, lambda phrase: self._counters[phrase].count_in(codes))

    @property
    def stretch(self) -> bytes:
        """Return the codes of the longest phrase that has no alternative (``OR``) in the query.

        Each block with a match contains the returned codes.
        """
        phrases = [clause[0] for clause in self._asked.sought.clauses if len(clause) == 1]
        found = [self._counters[each].stretch for each in phrases if len(each.terms) > 1]
        return max(found, key=len, default=b"")

    def may_be_in(self, block: bytes) -> bool:
        """Return False if no text in `block` can match; `block` contains the codes of its texts."""
        return not self._asked.has_phrase or all(
            any(self._counters[phrase].stretch in block for phrase in clause)
            for clause in self._asked.sought.clauses
        )

    def _made_counters(self, begun: Mapping[str, Sequence[Kept]]) -> dict[Phrase, Counter]:
        codes = {key: each.code for key, each in self._kept.items() if is_word(key)}
        ranges: dict[str, Sequence[Range]] = {
            prefix: ranges_of([each.code for each in found]) for prefix, found in begun.items()
        }
        sought = self._asked.sought
        return {
            phrase: counter(phrase, codes, ranges) for phrase in (*sought.phrases, *sought.unwanted)
        }

    def _fitting(self) -> int:
        texts = (1 << self._size) - 1
        for group in self._asked.filters:
            texts &= reduce(int.__or__, (self._texts.get(key, 0) for key in group), 0)
        for clause in self._asked.sought.clauses:
            texts &= reduce(int.__or__, map(self._holding, clause), 0) if texts else 0
        for phrase in self._asked.sought.unwanted:
            if len(phrase.terms) == 1:
                texts &= ~self._holding(phrase)
        return texts

    def _holding(self, phrase: Phrase) -> int:
        """Return the texts (as bits) that contain all words of `phrase`, in any order."""
        texts = (1 << self._size) - 1
        for word in _whole(phrase):
            texts &= self._texts.get(word, 0)
        if phrase.is_prefix:
            texts &= self._begun.get(phrase.terms[-1], 0)
        return texts


def _whole(phrase: Phrase) -> tuple[str, ...]:
    return phrase.terms[:-1] if phrase.is_prefix else phrase.terms
