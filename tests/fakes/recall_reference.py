"""The formula of recall in its plainest form: every implementation must return the same scores."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from math import log
from typing import NamedTuple

from perdure.memory.question import Question, question_of
from perdure.session.search import words

terms = cache(words.terms)  # a test asks for the words of the same few texts thousands of times

BEFORE, AFTER, REACH = (0.7, 0.35, 0.2, 0.1), (0.5, 0.25, 0.1), 60


class SaidText(NamedTuple):
    """A text of a session: its name, its speaker, its words and its time."""

    name: str
    author: str | None
    text: str
    at: int


def reference_scores(sessions: list[list[SaidText]], question: str, now: int) -> dict[str, float]:
    """Return the score of each text that the question finds, by the name of the text."""
    asked = question_of(question, now)
    texts = [(session, index) for session in sessions for index in range(len(session))]
    lengths = {said.name: len(terms(said.text)) for session in sessions for said in session}
    reach = {name: min(1, REACH / length) for name, length in lengths.items() if length}
    spans = {
        session[index].name: lengths[session[index].name]
        + sum(weight * reach[name] * lengths[name] for weight, name in _near(session, index))
        for session, index in texts
    }
    mean = sum(spans.values()) / len(texts)
    session_mean = sum(lengths.values()) / len(sessions)
    scores: dict[str, float] = {}
    is_any = False
    context: defaultdict[str, float] = defaultdict(float)
    own: defaultdict[str, float] = defaultdict(float)
    of_session: defaultdict[int, float] = defaultdict(float)
    for word in asked.words:
        weights = [_weight(session, asked, word.key) for session in sessions]
        tf = {
            said.name: _count(said, word.has) * weight
            for session, weight in zip(sessions, weights, strict=True)
            for said in session
        }
        idf = _idf(len(texts), sum(1 for count in tf.values() if count))
        totals = [sum(tf[said.name] for said in session) for session in sessions]
        session_idf = _idf(len(sessions), sum(1 for total in totals if total))
        for number, (session, total) in enumerate(zip(sessions, totals, strict=True)):
            length = sum(lengths[said.name] for said in session) / session_mean
            if total:
                norm = 1.2 * (0.25 + 0.75 * length)
                of_session[number] += session_idf * 2.2 * total / (total + norm)
        for session, index in texts:
            name = session[index].name
            c = tf[name]
            c += sum(weight * reach[near] * tf[near] for weight, near in _near(session, index))
            if c:
                context[name] += idf * 2.2 * c / (c + 1.2 * (0.7 + 0.3 * spans[name] / mean))
            if tf[name]:
                own[name] += idf * 1.9 * tf[name] / (tf[name] + 0.9)
    for number, session in enumerate(sessions):
        for index, said in enumerate(session):
            main = 0.28 * context[said.name] + 0.10 * own[said.name]
            main += 0.45 * of_session[number] + _circumstances(asked, session, index)
            score = main + _cues(asked, session, index)
            is_found = score > 0 or context[said.name] > 0
            is_any |= is_found and main != 0.45 * of_session[number]
            if is_found:
                scores[said.name] = score
    return scores if is_any else {}


def _near(session: list[SaidText], index: int) -> list[tuple[float, str]]:
    """Return the weight and the name of each neighbour of a text."""
    near = [(weight, index - distance) for distance, weight in enumerate(BEFORE, 1)]
    near += [(weight, index + distance) for distance, weight in enumerate(AFTER, 1)]
    return [(weight, session[at].name) for weight, at in near if 0 <= at < len(session)]


def _circumstances(asked: Question, session: list[SaidText], index: int) -> float:
    said, score, question_words = session[index], 0.0, set(terms(asked.text))
    named = [question_words & set(terms(each.author or "")) for each in session]
    if named[index]:
        score += 1.0
        around = [named[at] for at in (index - 1, index + 1) if 0 <= at < len(session)]
        if _speakers(session) > 2 and any(
            one - named[index] and named[index] - one for one in around
        ):
            score += 1.0
    if asked.period is not None and (closeness := asked.period.closeness(said.at)) >= 0.05:
        score += 6 * closeness
    return score


def _cues(asked: Question, session: list[SaidText], index: int) -> float:
    said, score = session[index], 0.0
    if asked.asks_when and "yesterday" in terms(said.text):
        score += 1.9
    if index and session[index - 1].text.endswith("?"):
        score += 0.2
    if said.text.endswith("?"):
        score -= 0.6
    if "?" in said.text:
        score -= 0.25
    return score


def _weight(session: list[SaidText], asked: Question, stem: str) -> float:
    if not _is_name(session, asked, stem):
        return 1.0
    return 0.25 if _speakers(session) > 2 else 0.0


def _speakers(session: list[SaidText]) -> int:
    return len({said.author for said in session if said.author})


def _is_name(session: list[SaidText], asked: Question, stem: str) -> bool:
    names = {word for said in session for word in terms(said.author or "")}
    stems = {question_of(word, 0).words[0].key for word in names & set(terms(asked.text))}
    return stem in stems


def _count(said: SaidText, has: object) -> int:
    assert callable(has)
    return sum(1 for word in terms(said.text) if has(word))


def _idf(size: int, having: int) -> float:
    return log(1 + (size - having + 0.5) / (having + 0.5))
