"""The query that recall builds from a question."""

from __future__ import annotations

from datetime import UTC, datetime

from perdure.memory.question import MOST_CLASSES, Question, question_of
from tests.fakes.samples import case

NOW = int(datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp() * 1000)


def asked(text: str) -> Question:
    return question_of(text, NOW)


def test_matching_words_begin_with_the_search_prefix() -> None:
    words = (
        "happy happily happiness running ran dies die skies sky agreed news universal university"
    )
    for word in words.split():
        for each in asked(f"what about the {word}").words:
            for said in words.split():
                with case((word, said)):
                    assert not each.has(said) or said.startswith(each.prefix)


def test_function_words_beside_other_words_are_ignored() -> None:
    assert [word.asked for word in asked("What did the two of them do there?").words] == ["two"]
    assert [word.asked for word in asked("Worüber hat er mit ihr geredet?").words] == ["geredet"]


def test_question_of_only_function_words_searches_for_these_words() -> None:
    assert {word.asked for word in asked("Who was it?").words} == {"who", "was", "it"}


def test_question_without_words_searches_for_nothing() -> None:
    assert asked("?! …").words == ()


def test_long_question_searches_for_a_bounded_number_of_words() -> None:
    question = "What about " + " ".join(f"word{number}" for number in range(3_000))
    assert len(asked(question).words) == MOST_CLASSES


def test_question_that_asks_for_a_time_is_recognized() -> None:
    assert asked("When was that?").asks_when
    assert asked("Seit wann geht das?").asks_when
    assert asked("Do you know when that was?").asks_when
    assert not asked("Where was that?").asks_when
    assert not asked("What did he do when she left?").asks_when
