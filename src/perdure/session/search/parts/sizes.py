"""Sizes used by all indexes: texts per part, and unindexed texts that a search is allowed to read.

Other modules read the sizes at each use, so that a test can make the sizes small.
"""

from __future__ import annotations

from perdure.session.search.parts.codes import MOST_WORDS

SCANNED = 48
"""A search reads up to this many entries that are not indexed; more are indexed first."""

MOST_LOOSE = 512
MOST_LOOSE_WORDS = 200_000
"""Loose texts can become a part from `MOST_LOOSE` texts or `MOST_LOOSE_WORDS` words on.

If there are at least twice `MOST_LOOSE` loose texts, a search updates the index first.
"""

BATCH_ROWS = 8_192
"""Maximum texts in one batch and in one part; it is at most ``postings.MOST_TEXTS``.

A part holds each of its words once. With 2,048 texts in a part, its pages take 0.71 of the size of
the texts. With 8,192 texts, they take 0.51 of this size, and a recall reads a quarter of the pages.
"""

BATCH_BYTES = 16_000_000
"""Maximum bytes indexed in one batch; a longer text is indexed alone."""


def is_due(behind: int, loose: int) -> bool:
    """Return True if a search would read too much unindexed text."""
    return behind > SCANNED or loose >= 2 * MOST_LOOSE


def is_enough(texts: int, words: int) -> bool:
    """Return True if there are enough texts for a part.

    A text that is too long for a part stays outside of all parts.
    """
    return words <= MOST_WORDS and (texts >= MOST_LOOSE or words >= MOST_LOOSE_WORDS)
