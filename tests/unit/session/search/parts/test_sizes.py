"""The size limits that determine when and how indexes are built."""

from __future__ import annotations

import pytest

from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.sizes import (
    MOST_LOOSE,
    MOST_LOOSE_WORDS,
    SCANNED,
    is_due,
    is_enough,
)


@pytest.mark.parametrize(
    ("behind", "loose", "due"),
    [
        (0, 0, False),
        (SCANNED, 2 * MOST_LOOSE - 1, False),
        (SCANNED + 1, 0, True),
        (0, 2 * MOST_LOOSE, True),
    ],
)
def test_indexing_is_due_after_enough_unindexed_texts(behind: int, loose: int, due: bool) -> None:
    assert is_due(behind, loose) == due


@pytest.mark.parametrize(
    ("texts", "words", "enough"),
    [
        (MOST_LOOSE - 1, MOST_LOOSE_WORDS - 1, False),
        (MOST_LOOSE, 0, True),
        (1, MOST_LOOSE_WORDS, True),
        (1, MOST_WORDS, True),
        (MOST_LOOSE, MOST_WORDS + 1, False),
    ],
)
def test_index_part_is_built_after_enough_texts_or_words(
    texts: int, words: int, enough: bool
) -> None:
    assert is_enough(texts, words) == enough
