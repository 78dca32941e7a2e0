"""Rank the texts of a corpus for a question.

The score of a text is the sum of three word scores: for the text with its neighbours in the session
(weighed by distance), for the text alone, and for the whole session. The score also rises if the
question names the speaker of the text or the time of its session. The score rises if the question
asks "when" and the text names a time, or if the previous text asks something. With an embedder, the
score rises if the text is near to the question in meaning. The constants come from measurements
(docs/decisions/0059-recall.md); a small change of a constant has little effect.

``arrays`` (with numpy) and ``sums`` (without numpy and vectors) compute the sums over all texts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from math import log
from typing import NamedTuple, Protocol

from perdure.memory.question import Question
from perdure.stores.search.corpus import Corpus, Counts
from perdure.stores.search.recall_plan import Ranked


class Weights(NamedTuple):
    """The weight of each reason for which a text is recalled; a weight of 0 switches a reason off.

    If `neighbours` is False, only the text itself counts. In a session with more than `TALK`
    speakers, the weight of a word that names one of them is multiplied by `names`. `speaker` is the
    weight of a text whose speaker the question names. In a session with more than `TALK` speakers,
    `exchange` is added to `speaker` if a neighbouring text is from another named speaker. `vector`
    is the weight of the meaning of a text with its neighbours. `own_vector` is the weight of the
    meaning of the text alone.
    """

    context: float = 0.28
    own: float = 0.10
    session: float = 0.45
    speaker: float = 1.0
    date: float = 6.0
    time: float = 1.9
    answers: float = 0.2
    asks: float = -0.6
    has_question: float = -0.25
    names: float = 0.25
    exchange: float = 1.0
    vector: float = 5.0
    own_vector: float = 2.0
    neighbours: bool = True


STANDARD = Weights()

MAIN = frozenset({"neighbours", "speaker", "date"})
"""If no text has any of these reasons, nothing is recalled."""

TALK = 2
"""In a session with more speakers than this, a name in a text shows whom the text is about."""

_MOST_NAMES = 62
"""Number of names that get a bit of their own in `Spoken`; further names share one bit."""

MEANT = 0.3
"""From this similarity on, a text is recalled even if it has no word of the question."""

NEAREST = 0.05
"""A time does not count if its closeness to the question's period is less than this."""


class Scope(NamedTuple):
    """The sessions that a recall searches.

    A session must be about one of `subjects`, must be in `only`, and must not be in `but`.
    `subjects`, `only` and `but` contain keys of ``stores.search.index_keys``. `subjects` and `only`
    restrict nothing if they are None.
    """

    subjects: Collection[str] | None = None
    only: Collection[str] | None = None
    but: Collection[str] = ()


class Saturation(NamedTuple):
    """A form of BM25: `factor` * count / (count + `k` (1 - `b` + `b` * relative length))."""

    factor: float
    k: float
    b: float


CONTEXT, OWN, SESSION = (
    Saturation(2.2, 1.2, 0.3),
    Saturation(1.9, 0.9, 0),
    Saturation(2.2, 1.2, 0.75),
)


class Spoken(NamedTuple):
    """The texts of a speaker whose name contains a word of the question.

    `name` is an integer with one bit set, which identifies the speaker. `name` is 0 for the texts
    in sessions with at most `TALK` speakers.
    """

    name: int
    texts: array[int]


class Having(NamedTuple):
    """The number of texts and of sessions in scope that contain a word."""

    texts: int = 0
    sessions: int = 0


class Size(NamedTuple):
    """The size of the scope: number of texts, sessions and words, and total length of all spans."""

    texts: int = 0
    sessions: int = 0
    words: float = 0.0
    spans: float = 0.0

    @property
    def mean_span(self) -> float:
        """The mean length of a text with its neighbours; 1.0 without texts."""
        return self.spans / max(self.texts, 1) or 1.0

    @property
    def mean_session(self) -> float:
        """The mean length of a session; 1.0 without sessions."""
        return self.words / max(self.sessions, 1) or 1.0

    def with_statements(self, number: int, words: int) -> Size:
        """Return the size with `number` statements added, each counted as a session of its own."""
        return Size(
            self.texts + number, self.sessions + number, self.words + words, self.spans + words
        )


class Sums(Protocol):
    """Computes the scores of those texts of a corpus that a scope allows."""

    @property
    def size(self) -> Size:
        """The size of the part of the corpus in scope."""
        ...

    def add(self, counts: Counts, named: Mapping[int, float]) -> Having:
        """Add the counts of a question word; return how many texts and sessions contain this word.

        `named` maps a session to the weight of the word in the session; the weight is 1 in all
        other sessions.
        """
        ...

    def allows(self, session: str) -> bool:
        """Return whether the scope allows the session with the key `session`.

        Return False if the session has no text.
        """
        ...

    def best(self, spoken: Sequence[Spoken], limit: int) -> list[Ranked]:
        """Return the best texts, best first; `spoken` are texts of the named speakers."""
        ...


SumsOf = Callable[[Corpus, Question, Scope, Weights], Sums]

Beside = Callable[[Size, Sequence[Having], Callable[[str], bool]], None]
"""A callback that receives the size of the scope, counts of words, and a test for sessions."""


def _nothing(_size: Size, _having: Sequence[Having], _allows: Callable[[str], bool]) -> None:
    return


def ranking(
    question: Question,
    scope: Scope,
    limit: int,
    sums: SumsOf,
    weights: Weights = STANDARD,
    *,
    beside: Beside = _nothing,
) -> Callable[[Corpus, Sequence[Counts]], list[Ranked]]:
    """Return a function that ranks a corpus and returns the best `limit` texts that `scope` allows.

    `beside` ranks statements, which are not in the corpus (``statements``).
    """

    def rank(corpus: Corpus, counts: Sequence[Counts]) -> list[Ranked]:
        spoken, named = _speakers(corpus, question, weights.names)
        scores = sums(corpus, question, scope, weights)
        having = [
            scores.add(counted, named.get(word.key, {}))
            for word, counted in zip(question.words, counts, strict=True)
        ]
        beside(scores.size, having, scores.allows)
        return _with_nearby(corpus, question, counts, scores.best(spoken, limit))

    return rank


def _with_nearby(
    corpus: Corpus, question: Question, counts: Sequence[Counts], best: Sequence[Ranked]
) -> list[Ranked]:
    around = [frozenset(corpus.around(each.text)) for each in best]
    near = frozenset[int]().union(*around)
    words = [
        (word.key, near.intersection(found.texts))
        for word, found in zip(question.words, counts, strict=True)
    ]
    return [
        each._replace(nearby=frozenset(key for key, texts in words if not texts.isdisjoint(own)))
        for each, own in zip(best, around, strict=True)
    ]


def idf(size: int, having: int) -> float:
    """Return the weight of a word that `having` of `size` texts contain."""
    return log(1 + (size - having + 0.5) / (having + 0.5))


def saturated(form: Saturation, count: float, length: float) -> float:
    """Return the weight of `count` occurrences in a text with the relative length `length`."""
    return form.factor * count / (count + form.k * (1 - form.b + form.b * length))


def _speakers(
    corpus: Corpus, question: Question, weight: float
) -> tuple[list[Spoken], dict[str, dict[int, float]]]:
    """Return the texts of the named speakers, and for each name its weight in each session."""
    spoken: list[Spoken] = []
    named: dict[str, dict[int, float]] = {}
    known = [author for author in question.names if author in corpus.authors]
    for number, author in enumerate(known):
        counts = named.setdefault(question.names[author], {})
        among_two, among_several = array("l"), array("l")
        for session, texts in corpus.authors[author].items():
            is_talk = corpus.session_speakers[session] <= TALK
            counts[session] = 0.0 if is_talk else weight
            if is_talk:
                among_two += texts
            else:
                among_several += texts
        spoken.append(Spoken(0, among_two))
        spoken.append(Spoken(1 << min(number, _MOST_NAMES), among_several))
    return spoken, named
