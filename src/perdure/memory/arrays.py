"""Sums over the texts of a corpus, with numpy: as ``sums`` computes them, for all texts at once."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.memory.question import Question
from perdure.memory.ranking import (
    CONTEXT,
    MAIN,
    NEAREST,
    OWN,
    SESSION,
    Saturation,
    Scope,
    Weights,
    idf,
)
from perdure.memory.sums import allowed_sessions
from perdure.session.search.cues import Cue
from perdure.stores.search.corpus import AFTER, BEFORE, Corpus, Counts
from perdure.stores.search.recall_plan import Ranked

Numbers = NDArray[np.int_]
Floats = NDArray[np.floating]

_HOUR_MS = 3_600_000


class ArraySums:
    """``ranking.Sums`` as arrays over all texts."""

    def __init__(self, corpus: Corpus, question: Question, scope: Scope, weights: Weights) -> None:
        self._corpus = corpus
        self._question = question
        self._weights = weights
        self._allowed = np.frombuffer(allowed_sessions(corpus, scope), dtype=np.bool_)
        self._owner = _view(corpus.sessions)
        sizes, lengths = _view(corpus.session_sizes), _view(corpus.session_lengths)
        self._sessions = int(self._allowed.sum())
        self._texts = int(sizes[self._allowed].sum())
        words = int(lengths[self._allowed].sum())
        spans = float(_view(corpus.session_spans, np.float64)[self._allowed].sum())
        self._lengths = _view(corpus.spans, np.float64) / (spans / max(self._texts, 1) or 1.0)
        self._session_lengths = lengths / (words / max(self._sessions, 1) or 1.0)
        self._context = np.zeros(len(self._owner))
        self._own = np.zeros(len(self._owner))
        self._of_session = np.zeros(len(lengths))

    def add(self, counts: Counts, named: Collection[int]) -> None:
        texts, frequencies = _view(counts.texts), _view(counts.frequencies)
        owner = self._owner[texts]
        is_in = self._allowed[owner]
        if named:
            is_in &= ~np.isin(owner, list(named))
        if not is_in.all():
            texts, frequencies, owner = texts[is_in], frequencies[is_in], owner[is_in]
        rarity = idf(self._texts, len(texts))
        self._own[texts] += rarity * _saturated(OWN, frequencies, 1.0)
        smooth = self._smoothed(texts, frequencies)
        where = np.flatnonzero(smooth)
        self._context[where] += rarity * _saturated(CONTEXT, smooth[where], self._lengths[where])
        totals = np.bincount(owner, frequencies, len(self._of_session))
        where = np.flatnonzero(totals)
        saturated = _saturated(SESSION, totals[where], self._session_lengths[where])
        self._of_session[where] += idf(self._sessions, len(where)) * saturated

    def best(self, spoken: Sequence[Sequence[int]], limit: int) -> list[Ranked]:
        said = np.zeros(len(self._owner), dtype=np.bool_)
        for texts in spoken:
            said[texts] = True
        numbers = np.flatnonzero(self._allowed[self._owner])
        reasons = self._reasons(numbers, said)
        score = np.sum(list(reasons.values()), axis=0)
        best = np.flatnonzero(score > 0)
        if not any(reasons[name][best].any() for name in MAIN & reasons.keys()):
            return []
        if len(best) > limit > 0:
            least = np.partition(score[best], len(best) - limit)[len(best) - limit]
            best = best[score[best] >= least]
        positions = _view(self._corpus.positions)[numbers[best]]
        order = best[np.lexsort((-positions, -score[best]))][:limit]
        return [
            Ranked(
                int(numbers[each]),
                float(score[each]),
                {name: float(values[each]) for name, values in reasons.items() if values[each]},
            )
            for each in order
        ]

    def _smoothed(self, texts: Numbers, frequencies: Numbers) -> Floats:
        size = len(self._owner)
        smooth = np.zeros(size + 1)  # the last is for the neighbour -1
        smooth[texts] = frequencies
        if self._weights.neighbours:
            corpus = self._corpus
            for columns, weights in ((corpus.after, BEFORE), (corpus.before, AFTER)):
                for column, weight in zip(columns, weights, strict=True):
                    smooth[_view(column)[texts]] += weight * frequencies
        return smooth[:size]

    def _reasons(self, texts: Numbers, said: NDArray[np.bool_]) -> dict[str, Floats]:
        weights, corpus = self._weights, self._corpus
        all_cues = np.frombuffer(corpus.cues, dtype=np.uint8)
        cues, before = all_cues[texts], _view(corpus.before[0])[texts]
        answers = (before >= 0) & (all_cues[before] & int(Cue.ASKS) > 0)
        asks, has_question = cues & int(Cue.ASKS) > 0, cues & int(Cue.HAS_QUESTION) > 0
        found: dict[str, Floats] = {
            "words": weights.own * self._own[texts],
            "neighbours": weights.context * self._context[texts],
            "session": weights.session * self._of_session[self._owner[texts]],
            "answer": weights.answers * answers,
            "question": weights.asks * asks + weights.has_question * has_question,
        }
        if said.any():
            found["speaker"] = weights.speaker * said[texts]
        if self._question.period is not None:
            found["date"] = weights.date * self._closeness(texts)
        if self._question.asks_when:
            found["time"] = weights.time * (cues & int(Cue.TIME) > 0)
        return found

    def _closeness(self, texts: Numbers) -> Floats:
        period = self._question.period
        if period is None:
            return np.zeros(len(texts))
        hours, where = np.unique(_view(self._corpus.ats)[texts] // _HOUR_MS, return_inverse=True)
        closeness = np.array([period.closeness(int(hour) * _HOUR_MS) for hour in hours])
        return np.where(closeness >= NEAREST, closeness, 0.0)[where]


def _view(column: array[Any], kind: type[np.number[Any]] = np.int_) -> NDArray[Any]:
    return np.frombuffer(column, kind)


def _saturated(form: Saturation, counts: Floats | Numbers, lengths: Floats | float) -> Floats:
    return form.factor * counts / (counts + form.k * (1 - form.b + form.b * lengths))
