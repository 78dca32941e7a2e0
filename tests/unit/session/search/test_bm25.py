"""Ranking of the entries that might match a search, by BM25."""

from __future__ import annotations

from perdure.session.search.bm25 import Candidate, rank


def order(*candidates: Candidate) -> list[int]:
    return [candidate.position for _, candidate in rank(candidates)]


def test_ranking_without_candidates_is_empty() -> None:
    assert rank([]) == []


def test_entry_with_more_occurrences_ranks_first() -> None:
    assert order(Candidate(1, (1,), 10), Candidate(2, (5,), 10)) == [2, 1]


def test_shorter_of_two_matching_entries_ranks_first() -> None:
    assert order(Candidate(2, (1,), 100), Candidate(1, (1,), 3)) == [1, 2]


def test_rarer_phrase_increases_the_score_more() -> None:
    common = [Candidate(number, (1, 0), 10) for number in range(2, 9)]

    assert order(*common, Candidate(1, (0, 1), 10))[0] == 1


def test_newest_of_equal_entries_comes_first() -> None:
    assert order(*(Candidate(number, (1,), 7) for number in (2, 9, -1, 4))) == [9, 4, 2, -1]


def test_ranking_does_not_depend_on_the_order_of_candidates() -> None:
    candidates = [Candidate(number, (number % 3, 1), number % 5 + 1) for number in range(1, 30)]

    assert rank(candidates) == rank(candidates[::-1])
