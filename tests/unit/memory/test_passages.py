"""The passage of a long text that best matches a question."""

from __future__ import annotations

from perdure.memory.passages import PASSAGE_WORDS, passage_of


def weight(term: str) -> float:
    return float(term in ("zebra", "crossing"))


def test_short_text_is_one_passage() -> None:
    assert passage_of("a zebra\n crossing ", weight) == (0, "a zebra\n crossing ")


def test_best_passage_of_a_long_text_contains_the_words_of_the_question() -> None:
    for before in (0, 100, 300, 1_000):
        text = "word " * before + "the zebra is near the crossing " + "other " * 1_000
        start, passage = passage_of(text, weight)
        assert text[start : start + len(passage)] == passage
        assert "zebra" in passage
        assert "crossing" in passage
        assert len(passage.split()) <= PASSAGE_WORDS + 40


def test_passage_with_both_words_ranks_above_repetitions_of_one_word() -> None:
    text = "zebra " * 200 + "far " * 200 + "zebra crossing " + "end " * 200
    assert "crossing" in passage_of(text, weight).text


def test_passage_begins_and_ends_at_a_line() -> None:
    lines = [f"line {number} of the listing" for number in range(200)]
    lines[100] = "a zebra crossing here"
    passage = passage_of("\n".join(lines), weight).text
    assert set(passage.splitlines()) <= set(lines)
