"""Words that count as the same in the language of a question."""

from __future__ import annotations

import pytest

from perdure.memory.languages import language_of
from perdure.memory.question import question_of
from perdure.session.search.words import terms


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        (
            "When did she travel?",
            "travelling travels travel traveller",
            {"travelling", "travels", "travel", "traveller"},
        ),
        ("What are the parties like?", "party parties part", {"party", "parties"}),
        ("What did the dying king say?", "die dying dyed", {"dying", "die"}),
        (
            "Wann haben wir die Häuser gekauft?",
            "Haus Häuser kaufen gekauft",
            {"haus", "hauser", "gekauft"},
        ),
        ("Où avons-nous mangé hier?", "manger mangeons mange", {"manger", "mange"}),
        ("¿Cuándo compramos las casas?", "casa compramos", {"casa", "compramos"}),
        ("Куда мы ездили на машине?", "машина машины машин", {"машина", "машины", "машин"}),
        ("私たちはどこで寿司を食べた", "寿司", {"寿", "司"}),
        ("kdy jsme byli pracovat doma", "pracovali pracujeme domek", {"pracovali"}),
    ],
)
def test_words_with_the_same_stem_count_as_one_word(
    question: str, text: str, found: set[str]
) -> None:
    classes = question_of(question, 0).words
    assert {word for word in terms(text) if any(each.has(word) for each in classes)} == found


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What did he say about the hotel?", "english"),
        ("Wer war das auf dem Bild?", "german"),
        ("Qui est-ce qui nous a dit cela ?", "french"),
        ("¿Quién nos lo dijo?", "spanish"),
        ("Chi ce lo ha detto?", "italian"),
        ("Quem nos falou sobre ele?", "portuguese"),
        ("Wie heeft het ons verteld?", "dutch"),
        ("hotel Lisbon", "english"),
        ("Kde jsme bydleli loni v zime", ""),
    ],
)
def test_language_is_detected_from_function_words(question: str, language: str) -> None:
    assert language_of(terms(question)).name == language
