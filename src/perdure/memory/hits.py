"""The results of a recall."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from perdure.bounds.short_repr import ShortRepr
from perdure.memory.episodes import Summary
from perdure.memory.knowledge import Source, source_of
from perdure.memory.passages import PASSAGE_WORDS, Passage, passage_of
from perdure.memory.question import Question
from perdure.memory.ranking import STANDARD
from perdure.memory.statements import RankedStatement
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.memory.facts import Fact
from perdure.session.search.values import SearchRole
from perdure.session.search.words import terms
from perdure.stores.search.corpus import WordClass
from perdure.stores.search.recall_plan import Recalled


class Why(ShortRepr, frozen=True, omit_defaults=True):
    """The reasons why a text was recalled.

    `terms` are the words of the question that the text contains. `neighbours` are the words of the
    question that only the neighbouring texts in the session contain. `speaker` is True if a person
    named in the question said the text. `date` is the closeness of the text's time to the time that
    the question names, from 0 to 1. `time` is True if the question asks for a time and the text
    names a time. `vector` is the similarity in meaning between the question and the text with its
    neighbours, a number from -1 to 1. `vector` is None if no embedder was used, or if the text has
    no vector yet.
    """

    terms: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()
    speaker: bool = False
    date: float = 0.0
    time: bool = False
    vector: float | None = None


RecallKind = Literal["text", "episode", "fact"]
"""The kind of a recall hit; ``text`` means a message or a passage of knowledge."""


class MemoryHit(ShortRepr, frozen=True):
    """A recalled text, the summary of an episode, or a fact.

    `text` is the text of the entry. If the entry is long, `text` is only the best passage, which
    begins at the character `start`. `source` is the file of a passage of a knowledge folder.
    `sources` are the entries that a fact comes from. For an episode, `sources` contains only the
    last entry of the episode, whose id is also the id of the episode. For a fact, `entry_id` is the
    id of the fact, and `session_id` is the log that contains all facts about the same subject.
    Units: `at` is in Unix milliseconds. For a text, `at` is the time when the text was said, or the
    time when the text was stored if the time of saying is unknown. For a fact, `at` is the time
    from which the fact is true. Shape: a higher `score` is better; scores are comparable within one
    recall only.
    """

    session_id: StreamId
    entry_id: EntryId
    role: SearchRole | Literal["fact"]
    text: str
    score: float
    at: int
    why: Why
    author: str | None = None
    is_passage: bool = False
    start: int = 0
    source: Source | None = None
    sources: tuple[EntryId, ...] = ()

    @property
    def kind(self) -> Literal["said", "knowledge", "episode", "fact"]:
        """The kind of hit: a message of a session, a knowledge passage, an episode or a fact."""
        if self.role == "fact":
            return "fact"
        if self.role == "summary":
            return "episode"
        return "said" if self.source is None else "knowledge"


def hit_of(question: Question, recalled: Recalled) -> MemoryHit:
    """Return the hit for a text that was recalled for `question`."""
    found, ranked = recalled
    entry = found.entry
    assert entry is not None, "titles are not recalled"
    own, passage = _read(question, found.what.text)
    return MemoryHit(
        session_id=found.stream,
        entry_id=entry.id,
        role=found.what.role,
        text=passage.text,
        score=round(ranked.score, 6),
        at=found.at,
        why=_why(question, own, ranked.reasons, ranked.nearby),
        author=found.what.author,
        is_passage=passage.text != found.what.text,
        start=passage.start,
        source=source_of(entry),
    )


def statement_hit(question: Question, of: Fact | Summary, ranked: RankedStatement) -> MemoryHit:
    """Return the hit for a fact or a summary that was recalled for `question`."""
    own, passage = _read(question, of.text)
    is_fact = isinstance(of, Fact)
    entry_id = of.id if is_fact else of.entry
    return MemoryHit(
        session_id=entry_place(entry_id)[0],
        entry_id=entry_id,
        role="fact" if is_fact else "summary",
        text=passage.text,
        score=round(ranked.score, 6),
        at=said_at(of),
        why=_why(question, own, ranked.reasons),
        is_passage=passage.text != of.text,
        start=passage.start,
        sources=of.sources if is_fact else (of.episode,),
    )


def said_at(of: Fact | Summary) -> int:
    """Return the time from which a fact is true, or the time when an episode ended.

    Units: Unix milliseconds.
    """
    return of.valid_from if isinstance(of, Fact) and of.valid_from is not None else of.at


def _read(question: Question, text: str) -> tuple[list[WordClass], Passage]:
    """Return the words of the question that `text` contains, and the best passage of `text`."""
    said = terms(text)
    spoken = frozenset(said)
    own = [word for word in question.words if any(map(word.contains, spoken))]
    if len(said) <= PASSAGE_WORDS:
        return own, Passage(0, text)
    weights = {term: float(any(word.contains(term) for word in own)) for term in spoken}
    return own, passage_of(text, weights.__getitem__)


def _why(
    question: Question,
    own: Collection[WordClass],
    reasons: Mapping[str, float],
    nearby: Collection[str] = (),
) -> Why:
    return Why(
        terms=tuple(word.asked for word in own),
        neighbours=tuple(
            word.asked for word in question.words if word.key in nearby and word not in own
        ),
        speaker="speaker" in reasons,
        date=round(reasons.get("date", 0.0) / STANDARD.date, 3),
        time="time" in reasons,
        vector=_similarity(reasons),
    )


def _similarity(reasons: Mapping[str, float]) -> float | None:
    weighed = reasons.get("vector")
    return None if weighed is None else round(weighed / STANDARD.vector, 3)
