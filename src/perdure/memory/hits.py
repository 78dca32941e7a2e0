"""The results of a recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from perdure.bounds.short_repr import short_repr
from perdure.memory.knowledge import Source, source_of
from perdure.memory.passages import PASSAGE_WORDS, Passage, passage_of
from perdure.memory.question import Question
from perdure.memory.ranking import STANDARD
from perdure.session.ids import EntryId, StreamId
from perdure.session.search.values import SearchRole
from perdure.session.search.words import terms
from perdure.stores.search.recall_plan import Recalled


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a text was recalled.

    `terms` are the words of the question that it contains, `neighbours` those that only the texts
    around it in its session contain. `speaker`: a person that the question names said it.
    `date`: how near its time is to the time that the question names, from 0 to 1. `time`: the
    question asks when, and it names a time. `vector`: how near its meaning, with its neighbours, is
    to the question, from -1 to 1; None if no embedder was asked, or it has no vector yet.
    """

    __repr__ = short_repr

    terms: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()
    speaker: bool = False
    date: float = 0.0
    time: bool = False
    vector: float | None = None


class MemoryHit(msgspec.Struct, frozen=True):
    """A recalled text.

    `text` is the whole text of the entry, or of a long one the passage that fits best, which begins
    at the character `start`. `source` is the file of a passage of a knowledge folder.
    Units: `at` is Unix milliseconds: when it was said, else when it was stored. Shape: a higher
    `score` is better; scores are comparable within one recall only.
    """

    __repr__ = short_repr

    session_id: StreamId
    entry_id: EntryId
    role: SearchRole
    text: str
    score: float
    at: int
    why: Why
    author: str | None = None
    is_passage: bool = False
    start: int = 0
    source: Source | None = None

    @property
    def kind(self) -> Literal["said", "knowledge"]:
        """Whether it was said in a session, or is a passage of a knowledge folder."""
        return "said" if self.source is None else "knowledge"


def hit_of(question: Question, recalled: Recalled) -> MemoryHit:
    """Return what was recalled for `question` as a hit."""
    found, ranked = recalled
    entry = found.entry
    assert entry is not None, "titles are not recalled"
    said = terms(found.what.text)
    spoken = frozenset(said)
    own = [word for word in question.words if any(map(word.contains, spoken))]
    passage = Passage(0, found.what.text)
    if len(said) > PASSAGE_WORDS:
        weights = {term: float(any(word.contains(term) for word in own)) for term in spoken}
        passage = passage_of(found.what.text, weights.__getitem__)
    return MemoryHit(
        session_id=found.stream,
        entry_id=entry.id,
        role=found.what.role,
        text=passage.text,
        score=round(ranked.score, 6),
        at=found.at,
        why=Why(
            terms=tuple(word.asked for word in own),
            neighbours=tuple(
                word.asked
                for word in question.words
                if word.key in ranked.nearby and word not in own
            ),
            speaker="speaker" in ranked.reasons,
            date=round(ranked.reasons.get("date", 0.0) / STANDARD.date, 3),
            time="time" in ranked.reasons,
            vector=_similarity(ranked.reasons),
        ),
        author=found.what.author,
        is_passage=passage.text != found.what.text,
        start=passage.start,
        source=source_of(entry),
    )


def _similarity(reasons: Mapping[str, float]) -> float | None:
    weighed = reasons.get("vector")
    return None if weighed is None else round(weighed / STANDARD.vector, 3)
