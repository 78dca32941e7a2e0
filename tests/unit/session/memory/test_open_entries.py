"""The entries that still wait for a later entry."""

from __future__ import annotations

import msgspec

from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_id
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.memory.open_entries import unclosed
from perdure.session.notes import Answer, Question, SessionEnded, SideBody


def entry(seq: int, body: SideBody, about: int | None = None) -> Entry:
    new = new_side(body)
    named = None if about is None else entry_id("s", about)
    return Entry(StreamId("s"), seq, "side", None, named, 0, new.kind, new.v, new.body)


def test_answered_questions_are_not_listed_as_open() -> None:
    asked = [entry(0, Question("approval", "?", ())), entry(1, Question("approval", "?", ()))]
    ends = [entry(2, SessionEnded()), entry(3, SessionEnded())]
    closing = [entry(4, Answer("yes", "me"), 0), entry(5, EpisodeRecorded(0, 0, 0), 3)]
    notes = [*asked, *ends, *closing]
    assert unclosed(notes, Question.kind) == asked[1:]
    assert unclosed(notes, SessionEnded.kind) == ends[:1]


def test_answer_in_another_stream_leaves_the_question_open() -> None:
    asked = entry(0, Question("approval", "?", ()))
    forged = msgspec.structs.replace(entry(0, Answer("yes", "me"), 0), stream=StreamId("other"))
    assert unclosed([asked, forged], Question.kind) == [asked]
