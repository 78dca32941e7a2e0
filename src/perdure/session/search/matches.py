"""Match words against a query, and count the occurrences of its phrases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from perdure.session.search.query import Phrase, Sought


def counts_in(terms: Sequence[str], sought: Sought) -> tuple[int, ...] | None:
    """Return the count of each of ``sought.phrases`` in `terms`; None if `terms` do not match."""
    return counts_by(sought, lambda phrase: count(terms, phrase))


def counts_by(sought: Sought, counted: Callable[[Phrase], int]) -> tuple[int, ...] | None:
    """Return the count of each of ``sought.phrases``; None if the query does not match.

    `counted` returns the count of a phrase in the text.
    """
    if any(map(counted, sought.unwanted)):
        return None
    counts: list[int] = []
    for clause in sought.clauses:
        found = [counted(phrase) for phrase in clause]
        if not any(found):
            return None
        counts += found
    return tuple(counts)


def count(terms: Sequence[str], phrase: Phrase) -> int:
    """Return how often `phrase` occurs in `terms`; occurrences can overlap."""
    if len(phrase.terms) == 1 and not phrase.is_prefix:
        return terms.count(phrase.terms[0])
    return sum(1 for _ in places(terms, phrase))


def places(terms: Sequence[str], phrase: Phrase) -> Iterator[int]:
    """Yield the positions in `terms` where `phrase` begins."""
    *before, last = phrase.terms
    for place in _places_of(terms, before[0]) if before else range(len(terms)):
        end = place + len(before)
        if end >= len(terms) or list(terms[place:end]) != before:
            continue
        if terms[end] == last or (phrase.is_prefix and terms[end].startswith(last)):
            yield place


def _places_of(terms: Sequence[str], term: str) -> Iterable[int]:
    return (place for place, each in enumerate(terms) if each == term)
