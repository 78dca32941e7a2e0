"""Compute sums over the texts of a corpus without numpy: exact, but slow for frequent words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from perdure.memory.question import Question
from perdure.memory.ranking import (
    CONTEXT,
    MAIN,
    NEAREST,
    OWN,
    SESSION,
    Having,
    Scope,
    Size,
    Spoken,
    Weights,
    idf,
    saturated,
)
from perdure.session.search.cues import Cue
from perdure.stores.search.corpus import AFTER, BEFORE, Corpus, Counts
from perdure.stores.search.recall_plan import Ranked

_HOUR_MS = 3_600_000


class PlainSums:
    """Implements ``ranking.Sums`` with dicts that contain only texts matching the question."""

    def __init__(self, corpus: Corpus, question: Question, scope: Scope, weights: Weights) -> None:
        self._corpus = corpus
        self._question = question
        self._weights = weights
        self._allowed = allowed_sessions(corpus, scope)
        self.size = Size(
            int(self._total(corpus.session_sizes)),
            sum(self._allowed),
            self._total(corpus.session_lengths),
            self._total(corpus.session_spans),
        )
        self._context: dict[int, float] = {}
        self._own: dict[int, float] = {}
        self._of_session: dict[int, float] = {}
        self._hours: dict[int, float] = {}

    def add(self, counts: Counts, named: Mapping[int, float]) -> Having:
        corpus, allowed, size = self._corpus, self._allowed, self.size
        found = {
            text: frequency * weight
            for text, frequency in zip(*counts, strict=True)
            if allowed[session := corpus.sessions[text]] and (weight := named.get(session, 1.0))
        }
        rarity = idf(size.texts, len(found))
        totals = dict[int, float]()
        for text, frequency in found.items():
            _add(self._own, text, rarity * saturated(OWN, frequency, 1.0))
            session = corpus.sessions[text]
            totals[session] = totals.get(session, 0.0) + frequency
        smooth = self._smoothed(found) if self._weights.neighbours else found
        for text, count in smooth.items():
            length = corpus.spans[text] / size.mean_span
            _add(self._context, text, rarity * saturated(CONTEXT, count, length))
        rarity = idf(size.sessions, len(totals))
        for session, total in totals.items():
            length = corpus.session_lengths[session] / size.mean_session
            _add(self._of_session, session, rarity * saturated(SESSION, total, length))
        return Having(len(found), len(totals))

    def allows(self, session: str) -> bool:
        number = self._corpus.session(session)
        return number >= 0 and bool(self._allowed[number])

    def best(self, spoken: Sequence[Spoken], limit: int) -> list[Ranked]:
        said = dict[int, int]()
        for name, texts in spoken:
            for text in texts:
                said[text] = said.get(text, 0) | name
        best = self._best(self._context, said, limit)
        least = best[-1].score if len(best) == limit > 0 else 0.0
        others = {text for session in self._promising(said, least) for text in session}
        found = self._best(others.union(each.text for each in best), said, limit)
        return found if any(MAIN.intersection(each.reasons) for each in found) else []

    def _best(self, texts: Iterable[int], said: Mapping[int, int], limit: int) -> list[Ranked]:
        scored = (self._scored(text, said) for text in texts)
        found = (each for each in scored if each.score > 0 or each.text in self._context)
        positions = self._corpus.positions
        return nlargest(limit, found, key=lambda each: (each.score, positions[each.text]))

    def _promising(self, said: Collection[int], least: float) -> Iterator[Iterator[int]]:
        """Yield the texts of each session that can have a text with at least the score `least`."""
        corpus, weights = self._corpus, self._weights
        spoken = {corpus.sessions[text] for text in said}
        for session, is_allowed in enumerate(self._allowed):
            score = weights.session * self._of_session.get(session, 0.0)
            score += (weights.speaker + weights.exchange) * (session in spoken)
            score += weights.date * (self._question.period is not None)
            if is_allowed and score + weights.time + weights.answers >= least:
                yield corpus.texts_of(session)

    def _smoothed(self, found: dict[int, float]) -> dict[int, float]:
        """Return `found`, with a share of the frequency in each text added to the texts near it."""
        corpus, smooth = self._corpus, dict[int, float](found)
        for columns, weights in ((corpus.after, BEFORE), (corpus.before, AFTER)):
            for column, weight in zip(columns, weights, strict=True):
                for text, frequency in found.items():
                    if column[text] >= 0:
                        _add(smooth, column[text], weight * frequency * corpus.reach[text])
        return smooth

    def _scored(self, text: int, said: Mapping[int, int]) -> Ranked:
        weights, corpus = self._weights, self._corpus
        cues, before = corpus.cues[text], corpus.before[0][text]
        reasons = {
            "words": weights.own * self._own.get(text, 0.0),
            "neighbours": weights.context * self._context.get(text, 0.0),
            "session": weights.session * self._of_session.get(corpus.sessions[text], 0.0),
            "speaker": self._speech(text, said),
            "date": weights.date * self._closeness(text),
            "time": weights.time * (self._question.asks_when and cues & Cue.TIME > 0),
            "answer": weights.answers * (before >= 0 and corpus.cues[before] & Cue.ASKS > 0),
            "question": weights.asks * (cues & Cue.ASKS > 0)
            + weights.has_question * (cues & Cue.HAS_QUESTION > 0),
        }
        reasons = {name: value for name, value in reasons.items() if value}
        return Ranked(text, sum(reasons.values()), reasons)

    def _speech(self, text: int, said: Mapping[int, int]) -> float:
        """Return the score of a text whose speaker the question names; 0 for any other text.

        The score is higher if a neighbouring text is from another speaker that the question names.
        """
        if text not in said:
            return 0.0
        own, corpus = said[text], self._corpus
        near = (said.get(column[0][text], 0) for column in (corpus.before, corpus.after))
        is_exchange = any(own & ~other and other & ~own for other in near)
        return self._weights.speaker + self._weights.exchange * is_exchange

    def _closeness(self, text: int) -> float:
        period = self._question.period
        if period is None:
            return 0.0
        hour = self._corpus.ats[text] // _HOUR_MS
        if hour not in self._hours:
            closeness = period.closeness(hour * _HOUR_MS)
            self._hours[hour] = closeness if closeness >= NEAREST else 0.0
        return self._hours[hour]

    def _total(self, column: Sequence[float]) -> float:
        return sum(each for each, is_in in zip(column, self._allowed, strict=True) if is_in)


def allowed_sessions(corpus: Corpus, scope: Scope) -> bytearray:
    """Return for each session of `corpus` whether `scope` allows it."""
    allowed = bytearray([1]) * len(corpus.session_subjects)
    if scope.subjects is not None:
        subjects = set(map(corpus.subject, scope.subjects))
        allowed = bytearray(map(subjects.__contains__, corpus.session_subjects))
    if scope.only is not None:
        only = set(map(corpus.session, scope.only))
        for number in range(len(allowed)):
            allowed[number] &= number in only
    for number in map(corpus.session, scope.but):
        if number >= 0:
            allowed[number] = 0
    return allowed


def _add(sums: dict[int, float], key: int, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value
