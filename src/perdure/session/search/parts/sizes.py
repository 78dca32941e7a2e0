"""One measure for every index: how many texts make a part, and how many searches read as they are.

Whoever indexes asks for these when it counts, so that a test can make them small.
"""

from __future__ import annotations

from perdure.session.search.parts.codes import MOST_WORDS

SCANNED = 48
"""So few entries behind the mark are read by the search itself rather than indexed first."""

MOST_LOOSE = 512
MOST_LOOSE_WORDS = 200_000
"""Loose texts that a search reads; as many more are made a part."""

BATCH_ROWS = 2_048
BATCH_BYTES = 16_000_000
"""What is indexed at once at most: a text that is longer is indexed alone."""


def is_due(behind: int, loose: int) -> bool:
    """Whether a search would read more than it should of what is in no part."""
    return behind > SCANNED or loose >= 2 * MOST_LOOSE


def is_enough(texts: int, words: int) -> bool:
    """So many texts are worth a part; one that is too long for any stays loose."""
    return words <= MOST_WORDS and (texts >= MOST_LOOSE or words >= MOST_LOOSE_WORDS)
