"""The cues of a text: whether it asks a question or names a time."""

from __future__ import annotations

import pytest

from perdure.session.search.cues import Cue, cues_of
from perdure.session.search.words import terms


@pytest.mark.parametrize(
    ("text", "cues"),
    [
        ("It rained.", Cue(0)),
        ("Did it rain?", Cue.ASKS | Cue.HAS_QUESTION),
        ('"Did it rain?" ', Cue.ASKS | Cue.HAS_QUESTION),
        ("你好吗？", Cue.ASKS | Cue.HAS_QUESTION),  # noqa: RUF001 - a full-width question mark
        ("Did it? It did.", Cue.HAS_QUESTION),
        ("It rained last week.", Cue.TIME),
        ("It rained in 1999.", Cue.TIME),
        ("Es regnete am Montag.", Cue.TIME),
        ("Come to-morrow at ten o'clock.", Cue.TIME),
        ("An old man may have been here: mes amis, cela a été fait. Hier ist es.", Cue(0)),
        ("Room 4711", Cue(0)),
        ("", Cue(0)),
    ],
)
def test_time_expressions_and_questions_in_a_text_are_recognized(text: str, cues: Cue) -> None:
    assert cues_of(text, terms(text)) == cues
