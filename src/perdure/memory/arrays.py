"""Compute the sums of the module ``sums`` with numpy, for all texts in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

import numpy as np

from perdure.memory.question import Question
from perdure.memory.ranking import (
    CONTEXT,
    MEANT,
    NEAREST,
    OWN,
    SESSION,
    Having,
    Saturation,
    Scope,
    Size,
    Spoken,
    Weights,
    idf,
)
from perdure.memory.similarity import Floats, Numbers, Similarity, similarity, view
from perdure.memory.sums import allowed_sessions
from perdure.session.search.cues import Cue
from perdure.stores.search.corpus import AFTER, BEFORE, Corpus, Counts
from perdure.stores.search.recall_plan import Ranked

_HOUR_MS = 3_600_000

_ASKS = bytes(cues & Cue.ASKS > 0 for cues in range(256))
"""Table for ``bytes.translate`` that gives 1 for the cues of a text that ends with a question."""

_ROUNDING = 1e-9
"""Tolerance for rounding: the best scores are summed again, in the same order as in ``sums``."""


class ArraySums:
    """Implements ``ranking.Sums`` with arrays over all texts."""

    def __init__(self, corpus: Corpus, question: Question, scope: Scope, weights: Weights) -> None:
        self._corpus = corpus
        self._question = question
        self._weights = weights
        self._allowed = np.frombuffer(allowed_sessions(corpus, scope), dtype=np.bool_)
        self._owner = view(corpus.sessions)
        sizes, lengths = view(corpus.session_sizes), view(corpus.session_lengths)
        self.size = Size(
            int(sizes[self._allowed].sum()),
            int(self._allowed.sum()),
            int(lengths[self._allowed].sum()),
            float(view(corpus.session_spans, np.float64)[self._allowed].sum()),
        )
        self._reach = view(corpus.reach, np.float64)
        self._spans = view(corpus.spans, np.float64)
        self._session_lengths = lengths / self.size.mean_session
        self._context = np.zeros(len(self._owner))
        self._own = np.zeros(len(self._owner))
        self._of_session = np.zeros(len(lengths))

    def add(self, counts: Counts, named: Mapping[int, float]) -> Having:
        texts, frequencies = view(counts.texts), view(counts.frequencies)
        owner = self._owner[texts]
        is_in = self._allowed[owner]
        if named:
            weights = np.ones(len(self._allowed))
            weights[list(named)] = list(named.values())
            frequencies = frequencies * weights[owner]
            is_in &= frequencies > 0
        if not is_in.all():
            texts, frequencies, owner = texts[is_in], frequencies[is_in], owner[is_in]
        rarity = idf(self.size.texts, len(texts))
        self._own[texts] += rarity * _saturated(OWN, frequencies, 1.0)
        smooth = self._smoothed(texts, frequencies)
        where = np.flatnonzero(smooth != 0)  # of booleans it is ten times as fast
        lengths = self._spans[where] / self.size.mean_span
        self._context[where] += rarity * _saturated(CONTEXT, smooth[where], lengths)
        totals = np.bincount(owner, frequencies, len(self._of_session))
        where = np.flatnonzero(totals != 0)
        saturated = _saturated(SESSION, totals[where], self._session_lengths[where])
        self._of_session[where] += idf(self.size.sessions, len(where)) * saturated
        return Having(len(texts), len(where))

    def allows(self, session: str) -> bool:
        number = self._corpus.session(session)
        return number >= 0 and bool(self._allowed[number])

    def best(self, spoken: Sequence[Spoken], limit: int) -> list[Ranked]:
        speech, closeness = self._speech(spoken), self._closeness()
        score, main = self._scores(speech, closeness)
        found = (score > 0) | (self._context > 0)
        meaning = self._question.meaning
        near = None if meaning is None else similarity(self._corpus, meaning)
        if near is not None:
            meant = (near.window >= MEANT) & self._allowed[self._owner]
            found, main = found | meant, main + meant
            score = score + self._weights.vector * near.window
            score += self._weights.own_vector * near.own
        best = np.flatnonzero(found)
        if not main[best].any():
            return []
        if len(best) > limit > 0:
            least = np.partition(score[best], len(best) - limit)[len(best) - limit]
            best = best[score[best] >= least - _ROUNDING]
        positions = self._corpus.positions
        ranked = [self._ranked(int(text), speech, closeness, near) for text in best]
        return nsmallest(limit, ranked, key=lambda each: (-each.score, -positions[each.text]))

    def _speech(self, spoken: Sequence[Spoken]) -> Floats | None:
        """Return the scores of texts whose speaker the question names; 0 for all other texts.

        The score is higher if a neighbouring text is from another speaker that the question names.
        """
        if not spoken:
            return None
        size, weights = len(self._owner), self._weights
        said, names = np.zeros(size), np.zeros(size + 1, np.int64)  # the last is for neighbour -1
        for name, texts in spoken:
            said[view(texts)] = weights.speaker
            names[view(texts)] |= name
        where = np.flatnonzero(names[:size])
        own, is_exchange = names[where], np.zeros(len(where), np.bool_)
        for column in (self._corpus.before, self._corpus.after):
            other = names[view(column[0])[where]]
            is_exchange |= ((own & ~other) != 0) & ((other & ~own) != 0)
        said[where] += weights.exchange * is_exchange
        return said

    def _scores(self, speech: Floats | None, closeness: Floats | None) -> tuple[Floats, Floats]:
        """Return the score of each text, which is 0 for a text that is not allowed.

        The second result is the part of each score that comes from the reasons in ``MAIN``.
        """
        weights = self._weights
        main = weights.context * self._context
        if speech is not None:
            main += speech
        if closeness is not None:
            main += weights.date * closeness
        score = (weights.session * self._of_session)[self._owner]
        score += weights.own * self._own
        score += self._cues()
        score += main
        if not self._allowed.all():
            score[~self._allowed[self._owner]] = 0.0
        return score, main

    def _cues(self) -> Floats:
        """Return the cue score of each text, plus a score if the previous text asks something."""
        weights, corpus = self._weights, self._corpus
        kinds = np.arange(256)
        time = weights.time if self._question.asks_when else 0.0
        own = weights.asks * (kinds & int(Cue.ASKS) > 0) + time * (kinds & int(Cue.TIME) > 0)
        own += weights.has_question * (kinds & int(Cue.HAS_QUESTION) > 0)
        found = own.take(np.frombuffer(corpus.cues, dtype=np.uint8))
        asking = np.frombuffer(corpus.cues.translate(_ASKS), dtype=np.bool_)
        answering = view(corpus.after[0])[asking]
        found[answering[answering >= 0]] += weights.answers
        return found

    def _smoothed(self, texts: Numbers, frequencies: Floats | Numbers) -> Floats:
        size = len(self._owner)
        smooth = np.zeros(size + 1)  # the last is for the neighbour -1
        smooth[texts] = frequencies
        if self._weights.neighbours:
            corpus = self._corpus
            frequencies = frequencies * self._reach[texts]
            for columns, weights in ((corpus.after, BEFORE), (corpus.before, AFTER)):
                for column, weight in zip(columns, weights, strict=True):
                    smooth[view(column)[texts]] += weight * frequencies
        return smooth[:size]

    def _ranked(
        self,
        text: int,
        speech: Floats | None,
        closeness: Floats | None,
        near: Similarity | None,
    ) -> Ranked:
        weights, corpus = self._weights, self._corpus
        cues, before = corpus.cues[text], corpus.before[0][text]
        reasons = {
            "words": weights.own * self._own[text],
            "neighbours": weights.context * self._context[text],
            "session": weights.session * self._of_session[corpus.sessions[text]],
            "speaker": 0.0 if speech is None else speech[text],
            "date": 0.0 if closeness is None else weights.date * closeness[text],
            "time": weights.time * (self._question.asks_when and cues & Cue.TIME > 0),
            "answer": weights.answers * (before >= 0 and corpus.cues[before] & Cue.ASKS > 0),
            "question": weights.asks * (cues & Cue.ASKS > 0)
            + weights.has_question * (cues & Cue.HAS_QUESTION > 0),
            "vector": 0.0 if near is None else weights.vector * near.window[text],
            "own vector": 0.0 if near is None else weights.own_vector * near.own[text],
        }
        reasons = {name: float(value) for name, value in reasons.items() if value}
        return Ranked(text, sum(reasons.values()), reasons)

    def _closeness(self) -> Floats | None:
        """Return the closeness of every text to the period of the question."""
        period = self._question.period
        if period is None:
            return None
        hours, where = np.unique(view(self._corpus.ats) // _HOUR_MS, return_inverse=True)
        closeness = np.array([period.closeness(int(hour) * _HOUR_MS) for hour in hours])
        return np.where(closeness >= NEAREST, closeness, 0.0)[where]


def _saturated(form: Saturation, counts: Floats | Numbers, lengths: Floats | float) -> Floats:
    return form.factor * counts / (counts + form.k * (1 - form.b + form.b * lengths))
