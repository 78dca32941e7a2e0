"""The measures of recall.

``turn@10`` is the share of the evidence entries that are among the first ten hits. ``any@10`` is 1
if a session of the evidence is among the first ten sessions, otherwise 0. ``mean@10`` is the share
of the evidence sessions that are among the first ten. Sessions are ranked by their first hit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from benchmarks.memory.conversations import Conversation, Place, Question
from benchmarks.memory.memories import Asker

FIRST = 10


class Outcome(msgspec.Struct, frozen=True):
    """How well the hits answer one question, by each of the three measures."""

    conversation: Conversation
    question: Question
    turn: float
    any: float
    mean: float


class Means(msgspec.Struct, frozen=True):
    """The mean of each measure over some questions, and the number of questions."""

    count: int
    turn: float
    any: float
    mean: float


def outcome(conversation: Conversation, question: Question, hits: Sequence[Place]) -> Outcome:
    """Measure the ranked `hits`."""
    wanted = {each.place for each in question.evidence}
    sessions = {place.session for place in wanted}
    first = set(hits[:FIRST])
    found = sessions.intersection(list(dict.fromkeys(hit.session for hit in hits))[:FIRST])
    share = len(found) / len(sessions)
    turn = len(wanted & first) / len(wanted)
    return Outcome(conversation, question, turn, float(bool(found)), share)


async def outcomes_of(group: Sequence[Conversation], ask: Asker) -> list[Outcome]:
    """Ask every question of `group`, and return the outcomes."""
    return [
        outcome(conversation, question, await ask(question.question))
        for conversation in group
        for question in conversation.questions
    ]


def means(outcomes: Sequence[Outcome]) -> Means:
    """Return the means of `outcomes`."""
    count = max(len(outcomes), 1)
    return Means(
        len(outcomes),
        sum(each.turn for each in outcomes) / count,
        sum(each.any for each in outcomes) / count,
        sum(each.mean for each in outcomes) / count,
    )


HALVES = ("conversations of half 1", "conversations of half 2", "all questions")

GROUPS: dict[str, Callable[[Outcome], bool]] = {
    HALVES[2]: lambda _: True,
    HALVES[0]: lambda each: each.conversation.listed.half == 1,
    HALVES[1]: lambda each: each.conversation.listed.half == 2,
    "English conversations": lambda each: each.conversation.listed.language == "english",
    "German conversations": lambda each: each.conversation.listed.language == "german",
    "French conversations": lambda each: each.conversation.listed.language == "french",
    "coding sessions": lambda each: each.conversation.listed.name.startswith("coding"),
    "questions about a fact": lambda each: each.question.kind == "fact",
    "questions about a speaker": lambda each: each.question.kind == "who",
    "questions about a time": lambda each: each.question.kind == "when",
    "questions in other words than the answer": lambda each: each.question.kind == "paraphrase",
    "questions that one entry answers": lambda each: len(each.question.evidence) == 1,
    "questions that several entries answer": lambda each: len(each.question.evidence) > 1,
}
"""The rows of the table; for each row, a function returns whether an outcome belongs to it."""
