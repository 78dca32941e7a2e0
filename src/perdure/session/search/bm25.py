"""Which of the entries that fit a query come first: BM25 over those entries themselves.

How rare a phrase is, and how long an entry is beside others, is counted among the candidates of
the search and nowhere else. So every backend gives the same scores, a store that was indexed anew
gives them again, and no score tells anything about what another namespace holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75


class Candidate(NamedTuple):
    """An entry that fits: its position, how often each phrase occurs in it, its words."""

    position: int
    counts: tuple[int, ...]
    length: int


def rank(candidates: Sequence[Candidate]) -> list[tuple[float, Candidate]]:
    """`candidates` with their scores, the best first; of equal ones the newest."""
    if not candidates:
        return []
    weights = _weights(candidates)
    mean = sum(candidate.length for candidate in candidates) / len(candidates) or 1.0
    scored = [(_score(candidate, weights, mean), candidate) for candidate in candidates]
    scored.sort(key=lambda pair: (-pair[0], -pair[1].position))
    return scored


def _weights(candidates: Sequence[Candidate]) -> list[float]:
    """What an occurrence of each phrase counts: the more, the fewer of the candidates have it."""
    size = len(candidates)
    having = [sum(1 for c in counts if c) for counts in zip(*(c.counts for c in candidates))]  # noqa: B905 - all have one count per phrase
    return [log(1 + (size - number + 0.5) / (number + 0.5)) for number in having]


def _score(candidate: Candidate, weights: Sequence[float], mean: float) -> float:
    norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * candidate.length / mean)
    score = 0.0
    for weight, count in zip(weights, candidate.counts, strict=True):
        score += weight * count * (_SATURATION + 1) / (count + norm)
    return round(score, 6)
