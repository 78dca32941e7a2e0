"""Rank facts and summaries of episodes for a question, together with the texts of a corpus.

A statement is scored like a session with one text: by its words, time, cues and meaning. The rarity
of words and the mean lengths are computed over all texts and statements in scope. So a statement's
score can be compared with a text's score. A statement that has no word of the question can only be
found by its meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.memory.question import Question
from perdure.memory.ranking import (
    CONTEXT,
    MEANT,
    NEAREST,
    OWN,
    SESSION,
    STANDARD,
    Having,
    Size,
    Weights,
    idf,
    saturated,
)
from perdure.session.search.cues import Cue, cues_of
from perdure.session.search.words import terms


class Statement(NamedTuple):
    """A fact or a summary: a text that can be understood alone.

    The statement is in scope if the session with the key `session` is in scope. If `session` is
    None, the statement is always in scope. `nearness` is the cosine between the statement's meaning
    and the question's meaning; None if it is unknown.
    Units: `at` is Unix milliseconds.
    """

    text: str
    at: int
    session: str | None = None
    nearness: float | None = None


class RankedStatement(NamedTuple):
    """The number of a statement, its score, and the contribution of each reason to the score."""

    number: int
    score: float
    reasons: dict[str, float]


class StatementRanking:
    """Ranks `statements` when called with the size of a corpus; `best` contains the results."""

    def __init__(
        self, question: Question, statements: Sequence[Statement], weights: Weights = STANDARD
    ) -> None:
        self._question = question
        self._statements = statements
        self._weights = weights
        self.best: list[RankedStatement] = []

    def __call__(self, size: Size, having: Sequence[Having], allows: Callable[[str], bool]) -> None:
        """Rank the statements of those sessions for which `allows` returns True.

        `having` states, for each word of the question, how many texts and sessions contain it.
        Statements outside the scope are not counted, so the scores do not depend on them.
        """
        inside = {
            number: terms(each.text)
            for number, each in enumerate(self._statements)
            if each.session is None or allows(each.session)
        }
        found = {number: self._counts(words) for number, words in inside.items()}
        size = size.with_statements(len(inside), sum(map(len, inside.values())))
        rarity = [
            (
                idf(size.texts, each.texts + with_it),
                idf(size.sessions, each.sessions + with_it),
            )
            for place, each in enumerate(having)
            for with_it in [sum(counts[place] > 0 for counts in found.values())]
        ]
        best: list[RankedStatement] = []
        for number, words in inside.items():
            statement = self._statements[number]
            if any(found[number]) or (statement.nearness or 0.0) >= MEANT:
                reasons = self._by_words(found[number], rarity, len(words), size)
                reasons |= self._besides(statement, words)
                best.append(RankedStatement(number, sum(reasons.values()), reasons))
        best.sort(key=lambda each: (-each.score, -self._statements[each.number].at, -each.number))
        self.best = best

    def _counts(self, words: Sequence[str]) -> list[int]:
        """Return how often each word of the question is among `words`."""
        frequencies = Counter(words)
        return [
            sum(count for said, count in frequencies.items() if word.contains(said))
            for word in self._question.words
        ]

    def _by_words(
        self,
        counts: Sequence[int],
        rarity: Sequence[tuple[float, float]],
        length: int,
        size: Size,
    ) -> dict[str, float]:
        weights, context, own, session = self._weights, 0.0, 0.0, 0.0
        for count, (among_texts, among_sessions) in zip(counts, rarity, strict=True):
            if count:
                own += among_texts * saturated(OWN, count, 1.0)
                context += among_texts * saturated(CONTEXT, count, length / size.mean_span)
                session += among_sessions * saturated(SESSION, count, length / size.mean_session)
        found = {
            "words": weights.own * own,
            "neighbours": weights.context * context,
            "session": weights.session * session,
        }
        return {name: value for name, value in found.items() if value}

    def _besides(self, statement: Statement, words: Sequence[str]) -> dict[str, float]:
        """Return how much each reason other than words contributes to the score."""
        weights, period, cues = self._weights, self._question.period, cues_of(statement.text, words)
        nearness = statement.nearness or 0.0
        closeness = 0.0 if period is None else period.closeness(statement.at)
        found = {
            "date": weights.date * closeness if closeness >= NEAREST else 0.0,
            "time": weights.time * (self._question.asks_when and cues & Cue.TIME > 0),
            "question": weights.asks * (cues & Cue.ASKS > 0)
            + weights.has_question * (cues & Cue.HAS_QUESTION > 0),
            "vector": weights.vector * nearness,
            "own vector": weights.own_vector * nearness,
        }
        return {name: value for name, value in found.items() if value}
