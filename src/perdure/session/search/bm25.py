"""Rank matching entries with BM25 over the candidates of the search.

Phrase rarity and relative entry length are computed from the candidates only, so every backend and
every rebuilt index gives the same scores, and no score reveals the content of another namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

_SATURATION = 1.2
_LENGTH_WEIGHT = 0.75


class Candidate(NamedTuple):
    """A matching entry: its position, the count of each phrase in it, and its number of words."""

    position: int
    counts: tuple[int, ...]
    length: int


def rank(candidates: Sequence[Candidate]) -> list[tuple[float, Candidate]]:
    """Return `candidates` with their scores, best first; among equal scores, newest first."""
    if not candidates:
        return []
    weights = _weights(candidates)
    mean = sum(candidate.length for candidate in candidates) / len(candidates) or 1.0
    scored = [(_score(candidate, weights, mean), candidate) for candidate in candidates]
    scored.sort(key=lambda pair: (-pair[0], -pair[1].position))
    return scored


def _weights(candidates: Sequence[Candidate]) -> list[float]:
    """Return the weight of each phrase: the fewer candidates contain it, the higher the weight."""
    size = len(candidates)
    having = [sum(1 for c in counts if c) for counts in zip(*(c.counts for c in candidates))]  # noqa: B905 - all have one count per phrase
    return [log(1 + (size - number + 0.5) / (number + 0.5)) for number in having]


def _score(candidate: Candidate, weights: Sequence[float], mean: float) -> float:
    norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * candidate.length / mean)
    score = 0.0
    for weight, count in zip(weights, candidate.counts, strict=True):
        score += weight * count * (_SATURATION + 1) / (count + norm)
    return round(score, 6)
