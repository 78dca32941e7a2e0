"""The reasons that a ranking gives for its hits."""

from __future__ import annotations

from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, Weights, ranking
from perdure.memory.sums import PlainSums
from perdure.stores.search.recall_plan import Ranked
from tests.fakes.clock import START_MS
from tests.fakes.corpora import corpus_of
from tests.fakes.recall_reference import SaidText


def ranked(
    texts: list[SaidText], question: str, weights: Weights | None = None
) -> dict[str, Ranked]:
    corpus, names = corpus_of([texts])
    asked = question_of(question, START_MS)
    counts = [corpus.counts((), word) for word in asked.words]
    rank = ranking(asked, Scope(), 10, PlainSums, weights or Weights())
    return {names[corpus.positions[each.text]]: each for each in rank(corpus, counts)}


def said(name: str, author: str | None, text: str) -> SaidText:
    return SaidText(name, author, text, START_MS)


def test_texts_of_every_speaker_named_in_a_question_rank_higher() -> None:
    texts = [said("a", "Ana Maria", "the moon"), said("b", "Bob", "the moon")]
    texts.append(said("c", "Eve", "the moon"))
    for question, speakers in (
        ("What did Ana say of the moon?", {"a"}),
        ("What did Ana Maria say of the moon?", {"a"}),
        ("What did Ana tell Bob of the moon?", {"a", "b"}),
        ("What about the moon?", set[str]()),
    ):
        found = ranked(texts, question)
        assert {name for name, each in found.items() if each.reasons.get("speaker")} == speakers


def test_speaker_name_adds_more_score_among_three_speakers() -> None:
    texts = [
        said("a", "Ana", "the moon"),
        said("e", "Eve", "the moon"),
        said("b", "Bob", "the moon"),
    ]
    texts += [said("f", "Eve", "the moon"), said("c", "Bob", "the moon")]
    question = "What did Ana Bob and Eve say of the moon?"
    alone = ranked(texts, "What did Ana and Bob say of the moon?")
    assert {each.reasons.get("speaker", 0.0) for each in alone.values()} == {0.0, 1.0}
    assert {each.reasons["speaker"] for each in ranked(texts, question).values()} == {2.0}
    between_two = ranked(texts[1:3], question)
    assert {each.reasons["speaker"] for each in between_two.values()} == {1.0}


def test_long_text_adds_less_score_to_its_neighbour() -> None:
    def of_neighbour(length: int) -> float:
        texts = [said("a", None, "moon " + "so " * (length - 1)), said("b", None, "so")]
        return ranked(texts, "the moon?")["b"].reasons["neighbours"]

    assert of_neighbour(600) < 0.2 * of_neighbour(60)


def test_hit_reason_lists_matching_words_of_neighbouring_texts() -> None:
    texts = [said("a", None, "the hotel"), said("b", None, "by the river"), said("c", None, "so")]
    found = ranked(texts, "Which hotel by the river?")
    assert found["c"].nearby == {"hotel", "river"}


def test_ranking_reason_with_weight_zero_is_not_used() -> None:
    texts = [said("a", "Ana", "the moon"), said("b", "Bob", "what else?")]
    off = Weights(speaker=0, neighbours=False)
    found = ranked(texts, "What did Ana say of the moon?", off)
    assert found.keys() == {"a"}
    assert "speaker" not in found["a"].reasons


def test_speaker_name_in_a_text_counts_only_with_more_than_two_speakers() -> None:
    texts = [said("a", "Ana", "so be it"), said("b", "Bob", "we tell Ana of the moon")]
    assert "words" not in ranked(texts, "Who is Ana?").get("b", Ranked(0, 0, {})).reasons

    several = ranked([*texts, said("c", "Eve", "the sun")], "Who is Ana?")

    assert several["b"].reasons["words"] > 0
    assert several["a"].score > several["b"].score
