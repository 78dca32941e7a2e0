"""The ranking of facts and summaries together with texts."""

from __future__ import annotations

import pytest

from perdure.memory import arrays
from perdure.memory.question import question_of
from perdure.memory.ranking import Having, Scope, Size, ranking
from perdure.memory.statements import RankedStatement, Statement, StatementRanking
from perdure.memory.sums import PlainSums
from tests.fakes.clock import START_MS
from tests.fakes.corpora import corpus_of
from tests.fakes.recall_reference import SaidText

DAY_MS = 86_400_000


def ranked(
    question: str, *statements: Statement, sizes: Size | None = None
) -> list[RankedStatement]:
    asked = question_of(question, START_MS)
    rank = StatementRanking(asked, statements)
    rank(sizes or Size(), [Having()] * len(asked.words), lambda session: session == "in")
    return rank.best


def test_statement_with_more_words_of_question_comes_first() -> None:
    best = ranked(
        "Which hotel by the river?",
        Statement("the hotel", START_MS),
        Statement("the hotel by the river", START_MS),
        Statement("a house", START_MS),
    )
    assert [each.number for each in best] == [1, 0]
    assert all(each.reasons["words"] > 0 for each in best)


def test_summary_out_of_scope_changes_no_score() -> None:
    inside = Statement("the hotel", START_MS, "in")
    (alone,) = ranked("Which hotel?", inside)
    (beside,) = ranked("Which hotel?", inside, Statement("the hotel", START_MS, "out"))
    assert alone == beside


def test_statement_is_found_by_meaning_without_matching_words() -> None:
    near = Statement("an inn", START_MS, nearness=0.6)
    far = Statement("an inn", START_MS, nearness=0.1)
    assert [each.number for each in ranked("Which hotel?", far, near)] == [1]
    (found,) = ranked("Which hotel?", near)
    assert found.reasons.keys() == {"vector", "own vector"}


def test_text_that_matches_only_the_date_is_not_found() -> None:
    old = Statement("the hotel", START_MS - 90 * DAY_MS)
    new = Statement("the hotel", START_MS - DAY_MS)
    other = Statement("a house", START_MS - DAY_MS)
    best = ranked("Which hotel yesterday?", old, new, other)
    assert [each.number for each in best] == [1, 0]
    assert "date" in best[0].reasons


@pytest.mark.parametrize("sums", [PlainSums, arrays.ArraySums])
def test_corpus_size_counts_texts_sessions_and_words(
    sums: type[PlainSums],
) -> None:
    texts = [SaidText("a", None, "the hotel", START_MS), SaidText("b", None, "so", START_MS)]
    corpus, _ = corpus_of([texts, [SaidText("c", None, "hotel hotel", START_MS)]])
    asked = question_of("Which hotel?", START_MS)
    told: list[tuple[Size, list[Having]]] = []
    rank = ranking(
        asked,
        Scope(),
        10,
        sums,
        beside=lambda size, having, _allows: told.append((size, list(having))),
    )
    rank(corpus, [corpus.counts((), word) for word in asked.words])
    ((size, having),) = told
    assert (size.texts, size.sessions, size.words) == (3, 2, 5)
    assert having == [Having(2, 2)]
