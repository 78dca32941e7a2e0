"""The scores of recall follow the formula, with and without numpy."""

from __future__ import annotations

import pytest

from perdure.memory.arrays import ArraySums
from perdure.memory.question import question_of
from perdure.memory.ranking import Scope, ranking
from perdure.memory.sums import PlainSums
from perdure.stores.search.index_keys import session_key
from tests.fakes.clock import START_MS
from tests.fakes.corpora import QUESTIONS, corpus_of, random_sessions
from tests.fakes.recall_reference import reference_scores
from tests.fakes.samples import case, with_larger

Sums = type[PlainSums] | type[ArraySums]
EACH = pytest.mark.parametrize("sums", [PlainSums, ArraySums])


@pytest.mark.parametrize("sums", [PlainSums, pytest.param(ArraySums, marks=pytest.mark.full_only)])
@pytest.mark.parametrize("count", with_larger(5, 20))
def test_recall_scores_equal_those_of_a_reference_implementation(sums: Sums, count: int) -> None:
    for seed in range(count):
        sessions = random_sessions(seed)
        corpus, names = corpus_of(sessions, seed)
        for question in QUESTIONS:
            with case((seed, question)):
                asked = question_of(question, START_MS)
                counts = [corpus.counts((), word) for word in asked.words]
                ranked = ranking(asked, Scope(), 10_000, sums)(corpus, counts)
                got = {names[corpus.positions[each.text]]: each.score for each in ranked}
                assert got == pytest.approx(reference_scores(sessions, question, START_MS))


@EACH
def test_limited_ranking_is_the_start_of_the_full_ranking(sums: Sums) -> None:
    corpus, _ = corpus_of(random_sessions(1))
    asked = question_of("the moon and the boats", START_MS)
    counts = [corpus.counts((), word) for word in asked.words]
    everything = ranking(asked, Scope(), 10_000, sums)(corpus, counts)
    for limit in (0, 1, 5, len(everything)):
        assert ranking(asked, Scope(), limit, sums)(corpus, counts) == everything[:limit]


@EACH
def test_sessions_out_of_scope_do_not_affect_scores(sums: Sums) -> None:
    sessions = random_sessions(3)
    corpus, names = corpus_of(sessions)
    keys = tuple(session_key(f"s{number}") for number in (1, 4, 6))
    some = [sessions[number] for number in (1, 4, 6)]
    for question in QUESTIONS:
        asked = question_of(question, START_MS)
        counts = [corpus.counts((), word) for word in asked.words]
        ranked = ranking(asked, Scope(only=keys), 10_000, sums)(corpus, counts)
        got = {names[corpus.positions[each.text]]: each.score for each in ranked}
        assert got == pytest.approx(reference_scores(some, question, START_MS))


@EACH
def test_question_with_only_a_speaker_name_finds_texts_of_that_speaker(sums: Sums) -> None:
    sessions = random_sessions(5)
    corpus, names = corpus_of(sessions)
    asked = question_of("Bob?", START_MS)
    counts = [corpus.counts((), word) for word in asked.words]
    ranked = ranking(asked, Scope(), 10_000, sums)(corpus, counts)
    said = {each.name for session in sessions for each in session if each.author == "Bob Ray"}
    found = [names[corpus.positions[each.text]] for each in ranked]
    assert found[0] in said


@EACH
def test_question_without_known_words_finds_nothing(sums: Sums) -> None:
    corpus, _ = corpus_of(random_sessions(5))
    asked = question_of("Where is the zebra?", START_MS)
    counts = [corpus.counts((), word) for word in asked.words]
    assert ranking(asked, Scope(), 10, sums)(corpus, counts) == []
